"""Arguments in, exit code out. The work itself is in commands/, imported once it is known which."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from gpudoctor import __version__
from gpudoctor.arguments import COMMANDS
from gpudoctor.commands.options import Output
from gpudoctor.commands.output import say, write
from gpudoctor.errors import OutputError, UsageError

COMMAND_OF = {command.name: command for command in COMMANDS}
EXIT_CODES = """exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  wrong usage
  3  could not check: nothing was read, or not what the policy requires
"""
OPTIONS_NOTE = "`gpudoctor COMMAND --help` tells the options of each command.\n"


def main() -> NoReturn:
    """Entry point. Ends in an exit code and never in a traceback."""
    # A check ends before collecting garbage would pay, and the imports are a tenth faster without.
    gc.disable()
    _open_standard_streams()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored.
            signal.signal(number, _end)
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        say("interrupted")
        code = 130
    # At its end Python would collect garbage all the same: a tenth of a quick check.
    gc.freeze()
    raise SystemExit(code)


def run(arguments: list[str]) -> int:
    """The exit code of a command line; whatever goes wrong is told in one line."""
    try:
        return _run(arguments)
    except UsageError as error:
        say(str(error))
        return 2
    except OutputError as error:
        say(str(error))
        return 3
    except Exception as error:  # Whatever it is, the user gets one line of it.
        if os.environ.get("GPUDOCTOR_DEBUG"):
            raise
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        say(f"internal error, to be reported (GPUDOCTOR_DEBUG=1 shows more): {what}")
        return 3


def _run(arguments: list[str]) -> int:
    try:
        return _command(arguments)
    except _HelpAsked as asked:
        write(Output(), str(asked))
        return 0


def _command(arguments: list[str]) -> int:
    name = next((word for word in arguments if word in COMMAND_OF), None)
    if name is None:
        return _without_command(arguments)
    at = arguments.index(name)
    # `--format json check` is `check --format json`.
    words = [*arguments[:at], *arguments[at + 1 :]]
    command = COMMAND_OF[name]
    parser = _Parser(
        prog=f"gpudoctor {name}",
        description=command.text(),
        epilog=EXIT_CODES,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    command.options(parser)
    own, passed_on = command.split(words)
    parsed = parser.parse_args(own)
    parsed.words = passed_on
    return command.work(parsed)


def _without_command(arguments: list[str]) -> int:
    commands = "\n".join(f"  {command.name:<9}{command.text().splitlines()[0]}" for command in COMMANDS)
    parser = _Parser(
        prog="gpudoctor",
        usage="gpudoctor COMMAND [OPTIONS]",
        description="A doctor for PyTorch training machines and jobs.",
        epilog=f"commands:\n{commands}\n\n{EXIT_CODES}\n{OPTIONS_NOTE}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    unknown = next((word for word in arguments if not word.startswith("-")), None)
    if unknown is not None:
        from difflib import get_close_matches

        near = get_close_matches(unknown, COMMAND_OF, 1)
        raise UsageError(
            f"no command {unknown!r}" + (f"; the nearest is {near[0]}" if near else "; see gpudoctor --help")
        )
    parsed = parser.parse_args(arguments)
    if parsed.version:
        write(Output(), f"gpudoctor {__version__}\n")
        return 0
    raise UsageError(f"which command? {', '.join(COMMAND_OF)}; `gpudoctor --help` tells more")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Lines as they are written, options in a column wide enough for most."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=80)


class _Parser(argparse.ArgumentParser):
    """One that raises UsageError instead of ending the process, and prints help as reports are printed."""

    def __init__(self, **options: object) -> None:
        super().__init__(add_help=False, **options)  # type: ignore[arg-type]
        self.add_argument("-h", "--help", action=_AskHelp, nargs=0, help="show this and exit")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split())}; `{self.prog} --help` tells more")


class _HelpAsked(Exception):
    """Nothing else of the line matters."""


class _AskHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise _HelpAsked(parser.format_help())


def _open_standard_streams() -> None:
    """A closed one would lend its number to the first pipe opened, and a probe's answer would go there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """As the default would, but with the probes ended first."""
    raise SystemExit(128 + number)
