"""What the user asked for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class Format(str, enum.Enum):
    """How a report is written."""

    TERMINAL = "terminal"
    JSON = "json"
    MARKDOWN = "markdown"


class FailOn(str, enum.Enum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


@dataclass(frozen=True)
class Output:
    """Where a report goes, and in which form."""

    format: Format = Format.TERMINAL
    file: Path | None = None
    """None is standard output."""
    colour: bool = True
    """As far as the terminal has any."""


@dataclass(frozen=True)
class CheckOptions:
    """Of `gpudoctor check`."""

    output: Output = Output()
    quick: bool = False
    only: tuple[str, ...] = ()
    """Codes, names or areas; empty for all."""
    python: str | None = None
    policy: Path | None = None
    save: Path | None = None
    redact: bool = True
    checkpoint_dir: Path | None = None
    timeout_s: float = 60.0
    fail_on: FailOn = FailOn.ERROR
