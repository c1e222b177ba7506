"""Arguments in, exit code out. The work itself is in commands/, imported once it is known which."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from textwrap import dedent
from types import FrameType
from typing import NoReturn

from gpudoctor import __version__
from gpudoctor.commands.options import AnalyzeOptions, CheckOptions, FailOn, Format, Output, ProfileOptions
from gpudoctor.commands.output import say, write
from gpudoctor.errors import OutputError, UsageError

Work = Callable[[argparse.Namespace], int]

EXIT_CODES = """exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  wrong usage
  3  could not check: nothing was read, or not what the policy requires
"""
OPTIONS_NOTE = "`gpudoctor COMMAND --help` tells the options of each command.\n"
FAIL_ON = "exit 1 from this severity on (default: error)"


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
    name = next((word for word in arguments if word in COMMANDS), None)
    if name is None:
        return _without_command(arguments)
    at = arguments.index(name)
    # `--format json check` is `check --format json`.
    words = [*arguments[:at], *arguments[at + 1 :]]
    build, work = COMMANDS[name]
    parser = _Parser(
        prog=f"gpudoctor {name}",
        description=_text(work),
        epilog=EXIT_CODES,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    build(parser)
    own, passed_on = _split(words) if name == "profile" else (words, [])
    parsed = parser.parse_args(own)
    parsed.words = passed_on
    return work(parsed)


def _without_command(arguments: list[str]) -> int:
    commands = "\n".join(f"  {name:<9}{_first_line(work)}" for name, (_, work) in COMMANDS.items())
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
        near = get_close_matches(unknown, COMMANDS, 1)
        raise UsageError(
            f"no command {unknown!r}" + (f"; the nearest is {near[0]}" if near else "; see gpudoctor --help")
        )
    parsed = parser.parse_args(arguments)
    if parsed.version:
        write(Output(), f"gpudoctor {__version__}\n")
        return 0
    raise UsageError(f"which command? {', '.join(COMMANDS)}; `gpudoctor --help` tells more")


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


def _text(work: Work) -> str:
    first, _, rest = (work.__doc__ or "").partition("\n")
    return f"{first}\n{dedent(rest)}".rstrip()


def _first_line(work: Work) -> str:
    return _text(work).splitlines()[0]


# The options, by command


def _report_options(parser: argparse.ArgumentParser) -> None:
    names = [form.value for form in Format]
    parser.add_argument("--format", choices=names, default="terminal", help="form of the report (default: terminal)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the report there (default: standard output)")
    parser.add_argument(
        "--no-color", "--no-colour", dest="colour", action="store_false", help="no colours; NO_COLOR does the same"
    )


def _gate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fail-on", choices=[level.value for level in FailOn], default="error", help=FAIL_ON)
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="gpudoctor.toml, or pyproject.toml with [tool.gpudoctor]"
    )
    parser.add_argument(
        "--no-redact", dest="redact", action="store_false", help="keep names and secrets in what is for sharing"
    )


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="files and NVML alone: no import of torch, under a second")
    parser.add_argument(
        "--deep", action="store_true", help="make the hardware work as well: rates, links, wrong results; a minute"
    )
    parser.add_argument("--force", action="store_true", help="with --deep: load GPUs that others use, too")
    parser.add_argument(
        "--only",
        metavar="CODES",
        action="append",
        default=[],
        help="codes, names or areas, comma-separated (default: all)",
    )
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="FILE",
        action="extend",
        nargs="+",
        default=[],
        help="judge pasted text instead of this machine; - is standard input",
    )
    _python_option(parser)
    parser.add_argument(
        "--save", metavar="FILE", type=Path, help="write all facts there, as JSON without names and secrets"
    )
    parser.add_argument("--checkpoint-dir", metavar="DIR", type=Path, help="a folder the job writes to, looked at too")
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="time for all of it (default: 60, deep 300)")
    _gate_options(parser)
    _report_options(parser)


def _python_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PATH", help="interpreter to examine (default: the active environment's)")


def _profile_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpudoctor profile [OPTIONS] [SCRIPT | -m MODULE | -- LAUNCHER] [ARGS ...]"
    parser.add_argument("--nproc-per-node", metavar="N", type=_count, help="run the script under torchrun, N processes")
    parser.add_argument("--steps", metavar="N", type=_count, default=6, help="steps to trace (default: 6)")
    parser.add_argument("--wait", metavar="N", type=_count, default=5, help="steps of warm-up (default: 5)")
    parser.add_argument("--run-to-end", action="store_true", help="let the job go on once enough was seen")
    parser.add_argument(
        "--stall-timeout",
        metavar="S",
        type=_seconds,
        default=300.0,
        help="without a step for so long the job hangs (default: 300)",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="run folder, new or empty (default: gpudoctor-runs/TIME)"
    )
    _python_option(parser)
    _gate_options(parser)
    _report_options(parser)


PROFILE_VALUES = frozenset(
    {"--nproc-per-node", "--steps", "--wait", "--stall-timeout", "--out", "--python"}
    | {"--fail-on", "--policy", "--format", "--output"}
)
"""Options of `profile` that take a value, which is no script."""


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own options, and from the first other word on what is the job's: it is passed on untouched."""
    at = 0
    while at < len(words):
        if words[at] == "--":
            return words[:at], words[at + 1 :]
        if words[at] == "-m" or not words[at].startswith("-"):
            return words[:at], words[at:]
        at += 2 if words[at] in PROFILE_VALUES else 1
    return words, []


def _analyze_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="traces, one a rank, or a run folder")
    _gate_options(parser)
    _report_options(parser)


def _explain_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="CODE|NAME", help="such as SHM001 or shm-too-small")
    _report_options(parser)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 86400 seconds")
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 10000:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 10000")
    return count


# The work, by command


def _output(parsed: argparse.Namespace) -> Output:
    file = None if parsed.output == Path("-") else parsed.output
    return Output(Format(parsed.format), file, colour=parsed.colour)


def _check(parsed: argparse.Namespace) -> int:
    """Tell what is wrong with this machine for training, and its cure."""
    from gpudoctor.commands.check import run

    return run(
        CheckOptions(
            output=_output(parsed),
            sources=tuple(parsed.sources),
            quick=parsed.quick,
            deep=parsed.deep,
            force=parsed.force,
            only=tuple(parsed.only),
            python=parsed.python,
            policy=parsed.policy,
            save=parsed.save,
            redact=parsed.redact,
            checkpoint_dir=parsed.checkpoint_dir,
            timeout_s=parsed.timeout,
            fail_on=FailOn(parsed.fail_on),
        )
    )


def _profile(parsed: argparse.Namespace) -> int:
    """Run a training job, unedited, and tell where each step's time goes.

    Without a script a small DDP Transformer is trained. What follows SCRIPT is
    the script's own; a launcher's line stands after `--`:
    gpudoctor profile -- torchrun --nproc-per-node 4 train.py --lr 1e-3
    """
    from gpudoctor.commands.profile import run

    return run(
        ProfileOptions(
            output=_output(parsed),
            words=tuple(parsed.words),
            processes=parsed.nproc_per_node,
            steps=parsed.steps,
            wait=parsed.wait,
            run_to_end=parsed.run_to_end,
            stall_timeout_s=parsed.stall_timeout,
            out=parsed.out,
            python=parsed.python,
            policy=parsed.policy,
            redact=parsed.redact,
            fail_on=FailOn(parsed.fail_on),
        )
    )


def _analyze(parsed: argparse.Namespace) -> int:
    """Tell the same of torch.profiler traces, or of a run folder."""
    from gpudoctor.commands.profile import analyze

    return analyze(
        AnalyzeOptions(
            output=_output(parsed),
            paths=tuple(parsed.paths),
            policy=parsed.policy,
            redact=parsed.redact,
            fail_on=FailOn(parsed.fail_on),
        )
    )


def _explain(parsed: argparse.Namespace) -> int:
    """Tell all about one finding: when it fires, why it matters, its cure."""
    from gpudoctor.commands.explain import explain

    return explain(parsed.rule, _output(parsed))


def _rules(parsed: argparse.Namespace) -> int:
    """List every finding there is, one line each."""
    from gpudoctor.commands.explain import rules

    return rules(_output(parsed))


COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Work]] = {
    "check": (_check_options, _check),
    "profile": (_profile_options, _profile),
    "analyze": (_analyze_options, _analyze),
    "explain": (_explain_options, _explain),
    "rules": (_report_options, _rules),
}


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
