"""Arguments in, exit code out. The work itself is in commands/, imported once it is known which."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Optional

import typer

from gpudoctor import __version__
from gpudoctor.commands.options import CheckOptions, FailOn, Format, Output
from gpudoctor.commands.output import let_go_of_stdout, say
from gpudoctor.errors import OutputError, UsageError

Work = Callable[[], int]
"""What a command line asks for, ready to be done."""

EXIT_CODES = """exit codes:

\b
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  wrong usage
  3  could not check: nothing was read, or not what the policy requires
"""


def _option(
    *names: str,
    help: str,  # noqa: A002 - as typer's
    metavar: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
) -> Any:
    # The default stands in the help text, where it can be words.
    return typer.Option(*names, help=help, metavar=metavar, min=min, max=max, show_default=False)


app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # Plain help: rich would cost a third of the time --help may take.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

# WHY Optional: typer reads these at run time, and not every version of it reads `X | None`.
FormatOption = Annotated[Format, _option("--format", help="form of the report (default: terminal)")]
FileOption = Annotated[
    Optional[Path],  # noqa: UP045
    _option("--output", metavar="FILE", help="write the report there (default: standard output)"),
]
NoColourOption = Annotated[bool, _option("--no-color", "--no-colour", help="no colours; NO_COLOR does the same")]


@app.callback(invoke_without_command=True, epilog=EXIT_CODES)
def gpudoctor(
    context: typer.Context,
    version: Annotated[bool, _option("--version", help="print the version")] = False,
) -> Work:
    """A doctor for PyTorch training machines and jobs.

    Options of a command may stand before it or after it.
    """
    if context.invoked_subcommand is None and not version:
        raise UsageError("which command? check, explain or rules; `gpudoctor --help` tells more")
    return _print_version


@app.command(epilog=EXIT_CODES)
def check(
    quick: Annotated[bool, _option("--quick", help="files and NVML alone: no import of torch, under a second")] = False,
    only: Annotated[
        Optional[list[str]],  # noqa: UP045
        _option("--only", metavar="CODES", help="codes, names or areas, comma-separated (default: all)"),
    ] = None,
    python: Annotated[
        Optional[str],  # noqa: UP045
        _option("--python", metavar="PATH", help="interpreter to examine (default: the active environment's)"),
    ] = None,
    policy: Annotated[
        Optional[Path],  # noqa: UP045
        _option("--policy", metavar="FILE", help="gpudoctor.toml, or pyproject.toml with [tool.gpudoctor]"),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        _option("--save", metavar="FILE", help="write all facts there, as JSON without names and secrets"),
    ] = None,
    no_redact: Annotated[bool, _option("--no-redact", help="keep names and secrets in what is for sharing")] = (False),
    checkpoint_dir: Annotated[
        Optional[Path],  # noqa: UP045
        _option("--checkpoint-dir", metavar="DIR", help="a folder the job writes to, looked at as well"),
    ] = None,
    timeout_s: Annotated[
        float, _option("--timeout", metavar="S", min=1, max=3600, help="time for all of it (default: 60)")
    ] = 60.0,
    fail_on: Annotated[
        FailOn, _option("--fail-on", help="exit 1 from this severity on (default: error)")
    ] = FailOn.ERROR,
    format: FormatOption = Format.TERMINAL,  # noqa: A002 - the option's name
    file: FileOption = None,
    no_colour: NoColourOption = False,
) -> Work:
    """Tell what is wrong with this machine for training, and how to cure it."""
    if timeout_s != timeout_s:  # Not a number, which every range lets pass.
        raise UsageError("--timeout nan: give seconds, from 1 to 3600")
    options = CheckOptions(
        output=Output(format, _file(file), colour=not no_colour),
        quick=quick,
        only=tuple(only or ()),
        python=python,
        policy=policy,
        save=save,
        redact=not no_redact,
        checkpoint_dir=checkpoint_dir,
        timeout_s=timeout_s,
        fail_on=fail_on,
    )

    def work() -> int:
        from gpudoctor.commands.check import run

        return run(options)

    return work


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(metavar="CODE|NAME", help="such as SHM001 or shm-too-small")],
    format: FormatOption = Format.TERMINAL,  # noqa: A002 - the option's name
    file: FileOption = None,
    no_colour: NoColourOption = False,
) -> Work:
    """Tell all about one finding: when it fires, why it matters, how to confirm and cure it."""

    def work() -> int:
        from gpudoctor.commands.explain import explain

        return explain(rule, Output(format, _file(file), colour=not no_colour))

    return work


@app.command()
def rules(
    format: FormatOption = Format.TERMINAL,  # noqa: A002 - the option's name
    file: FileOption = None,
    no_colour: NoColourOption = False,
) -> Work:
    """List every finding there is, one line each."""

    def work() -> int:
        from gpudoctor.commands.explain import rules

        return rules(Output(format, _file(file), colour=not no_colour))

    return work


# Newer versions of typer bring a click of their own, so the class is reached through one that both export.
_TyperUsageError: type[Any] = typer.BadParameter.__mro__[1]


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
        return _parse(arguments)()
    except UsageError as error:
        say(str(error))
        return 2
    except OutputError as error:
        say(str(error))
        return 3
    except Exception as error:  # Whatever it is, the user gets one line of it.
        if os.environ.get("GPUDOCTOR_DEBUG"):
            raise
        what = f"{type(error).__name__}: {_one_line(str(error))}"
        say(f"internal error, to be reported (GPUDOCTOR_DEBUG=1 shows more): {what}")
        return 3


def _parse(arguments: list[str]) -> Work:
    """Help and version are printed on the way. Raises UsageError."""
    command = typer.main.get_command(app)
    try:
        work = command.main(_in_order(arguments), prog_name="gpudoctor", standalone_mode=False)
    except _TyperUsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "gpudoctor"
        raise UsageError(f"{_one_line(error.format_message())}; `{path} --help` tells more") from error
    except SystemExit:  # typer's answer to a reader that left, as in `--help | head -1`.
        let_go_of_stdout()
        return lambda: 0
    except OSError as error:
        let_go_of_stdout()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error
    return work if callable(work) else lambda: 0


def _in_order(arguments: list[str]) -> list[str]:
    """`--format json check` as `check --format json`."""
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    first = next((number for number, word in enumerate(arguments) if word in names), 0)
    return [arguments[first], *arguments[:first], *arguments[first + 1 :]] if first else arguments


def _file(file: Path | None) -> Path | None:
    """`--output -` is standard output."""
    return None if file == Path("-") else file


def _print_version() -> int:
    from gpudoctor.commands.output import write

    write(Output(), f"gpudoctor {__version__}\n")
    return 0


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


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
