"""What the user asked for."""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec


class Format(str, enum.Enum):
    """How a report is written."""

    TERMINAL = "terminal"
    JSON = "json"
    MARKDOWN = "markdown"
    GITHUB = "github"
    HTML = "html"


class FailOn(str, enum.Enum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


class Output(msgspec.Struct, frozen=True):
    """Where a report goes, and in which form."""

    format: Format = Format.TERMINAL
    file: Path | None = None
    """None is standard output."""
    colour: bool = True
    """As far as the terminal has any."""


class JudgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Of every command that judges."""

    output: Output = Output()
    policy: Path | None = None
    redact: bool = True
    fail_on: FailOn = FailOn.ERROR


class CheckOptions(JudgeOptions, frozen=True, kw_only=True):
    """Of `gpudoctor check`."""

    sources: tuple[str, ...] = ()
    """Files of pasted text to judge instead of this machine; `-` is standard input."""
    quick: bool = False
    deep: bool = False
    force: bool = False
    """Measure GPUs that others use, too."""
    only: tuple[str, ...] = ()
    """Codes, names or areas; empty for all."""
    python: str | None = None
    save: Path | None = None
    checkpoint_dir: Path | None = None
    timeout_s: float | None = None
    """None: a minute, with --deep five."""


class ProfileOptions(JudgeOptions, frozen=True, kw_only=True):
    """Of `gpudoctor profile`."""

    words: tuple[str, ...] = ()
    """Script, module or launcher with its arguments; empty for the built-in job."""
    processes: int | None = None
    steps: int = 6
    wait: int = 5
    run_to_end: bool = False
    stall_timeout_s: float = 300.0
    out: Path | None = None
    python: str | None = None


class AnalyzeOptions(JudgeOptions, frozen=True, kw_only=True):
    """Of `gpudoctor analyze`."""

    paths: tuple[Path, ...] = ()
