"""Write reports: to a pipe that may close, to a disk that may be full, to a file that is whole or not there."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from gpudoctor.commands.options import Format, Output
from gpudoctor.errors import OutputError, UsageError

OUR_SIGNS = "✖▲•✔×·…°"
STDOUT = 1


class PageSettings(TypedDict):
    """As reports for a terminal take them."""

    width: int
    colour: bool
    ascii_only: bool


def page_settings(output: Output, environ: Mapping[str, str]) -> PageSettings:
    """Width, colours and letters of where the report goes."""
    terminal = output.file is None and _is_terminal()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    return PageSettings(
        width=shutil.get_terminal_size((80, 24)).columns,
        colour=output.colour and terminal and not plain,
        ascii_only=output.file is None and not _can_show(OUR_SIGNS),
    )


def check_writable(path: Path | None) -> None:
    """Before the work, not after it. Raises UsageError."""
    if path is None or _is_special(path):
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    trial = _beside(path)
    try:
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        trial.unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {_reason(error)}") from error


def write(output: Output, text: str) -> None:
    """To the file or to standard output. Raises OutputError."""
    if output.file is not None:
        write_file(output.file, text.encode("utf-8", "backslashreplace"))
        return
    encoding = "utf-8" if output.format is not Format.TERMINAL else getattr(sys.stdout, "encoding", None) or "utf-8"
    _write_stdout(text.encode(encoding, "backslashreplace"))


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all: through a file beside it. Raises OutputError."""
    path = Path(os.path.realpath(path))  # A link stays a link.
    try:
        if _is_special(path):
            path.write_bytes(data)
            return
        new = _beside(path)
        try:
            new.write_bytes(data)
            if path.exists():
                shutil.copymode(path, new)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {_reason(error)}") from error


def say(text: str) -> None:
    """One line on standard error, if there is one."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"gpudoctor: {text.encode('ascii', 'backslashreplace').decode() if _deaf() else text}\n")
        sys.stderr.flush()


def let_go_of_stdout() -> None:
    """Nobody takes it: keep Python from trying again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:
        return  # Closed by the caller, who wants the exit code alone.
    try:
        sys.stdout.flush()
        # Not through sys.stdout: what its buffer could not write would be tried again, and reported, at the end.
        while data:
            data = data[os.write(STDOUT, data) :]
    except BrokenPipeError:
        let_go_of_stdout()  # As in `| head -1`: the reader has what he wanted.
    except OSError as error:
        let_go_of_stdout()
        raise OutputError(f"cannot write to standard output: {_reason(error)}") from error


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _can_show(signs: str) -> bool:
    try:
        signs.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _deaf() -> bool:
    return (getattr(sys.stderr, "encoding", None) or "").lower().replace("-", "") != "utf8"


def _is_special(path: Path) -> bool:
    """A device or a pipe, such as /dev/null: written to, never replaced."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _beside(path: Path) -> Path:
    # The process id keeps a hundred checks at once apart.
    return Path(os.path.realpath(path)).with_name(f".{path.name[:100]}.{os.getpid()}.new")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
