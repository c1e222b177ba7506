"""What a command is to the command line, and the options that several have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import msgspec

from gpudoctor.commands.options import FailOn, Format, Output

FAIL_ON = "exit 1 from this severity on (default: error)"
VALUES = frozenset({"--python", "--fail-on", "--policy", "--format", "--output"})
"""Options below that take a value."""


class Command(msgspec.Struct, frozen=True):
    """One word after `gpudoctor`."""

    name: str
    options: Callable[[argparse.ArgumentParser], None]
    """Adds the command's own to the parser."""
    work: Callable[[argparse.Namespace], int]
    """Its docstring is the help's text; imports what works where it is called. Gives the exit code."""
    values: frozenset[str] | None = None
    """Options that take a value, of a command with a job's line: from the first other word on all is the job's, kept in
    `words`. None: the whole line is the command's own."""

    def text(self) -> str:
        """What it does, as the help tells it."""
        first, _, rest = (self.work.__doc__ or "").partition("\n")
        return f"{first}\n{dedent(rest)}".rstrip()

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Our own options, and the job's words, which are passed on untouched."""
        if self.values is None:
            return words, []
        at = 0
        while at < len(words):
            if words[at] == "--":
                return words[:at], words[at + 1 :]
            if words[at] == "-m" or not words[at].startswith("-"):
                return words[:at], words[at:]
            at += 2 if words[at] in self.values else 1
        return words, []


def report_options(parser: argparse.ArgumentParser) -> None:
    """Form and place of the report."""
    names = [form.value for form in Format]
    parser.add_argument("--format", choices=names, default="terminal", help="form of the report (default: terminal)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the report there (default: standard output)")
    parser.add_argument(
        "--no-color", "--no-colour", dest="colour", action="store_false", help="no colours; NO_COLOR does the same"
    )


def gate_options(parser: argparse.ArgumentParser) -> None:
    """What decides the exit code."""
    parser.add_argument("--fail-on", choices=[level.value for level in FailOn], default="error", help=FAIL_ON)
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="gpudoctor.toml, or pyproject.toml with [tool.gpudoctor]"
    )
    parser.add_argument(
        "--no-redact", dest="redact", action="store_false", help="keep names and secrets in what is for sharing"
    )


def python_option(parser: argparse.ArgumentParser) -> None:
    """Whose torch."""
    parser.add_argument("--python", metavar="PATH", help="interpreter to examine (default: the active environment's)")


def seconds(text: str) -> float:
    """At least one and at most a day."""
    value = float(text)
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 86400 seconds")
    return value


def count(text: str) -> int:
    """From 1 to 10000."""
    value = int(text)
    if not 1 <= value <= 10000:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 10000")
    return value


def output(parsed: argparse.Namespace) -> Output:
    """As `report_options` asked for it."""
    file = None if parsed.output == Path("-") else parsed.output
    return Output(Format(parsed.format), file, colour=parsed.colour)
