"""What a probe may touch: files below a root, an environment, commands with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec


class NotRead(Exception):
    """The machine gives no answer here, and the message says why, in a clause: `needs root`."""


class System(msgspec.Struct, frozen=True):
    """This machine, or a recorded one: tests give a folder as root and an environment of their own."""

    root: Path = Path("/")
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    python: str = sys.executable
    """The interpreter under examination."""
    quick: bool = False
    """Files and NVML alone: no import of torch, no smoke test."""
    timeout_s: float = 60.0
    """For the whole check. A probe that has a child of its own asks it to be done by then, and tells how far it got."""
    checkpoint_dir: Path | None = None
    deep: bool = False
    """Make the hardware work, after everything else was read."""
    force: bool = False
    """Load GPUs that others use, too."""
    stages: frozenset[str] | None = None
    """Of the deep ones those to be done (StageFailure.stage names them); None for all."""
    scratch: Path | None = None
    """A folder that is gone after the check, whatever becomes of the probe."""
    tell: Callable[[str], None] = lambda _: None
    """Where a probe that takes long says what it is at."""

    def path(self, path: str) -> Path:
        """`/proc/meminfo` below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """The file's text, stripped; undecodable bytes are kept as surrogates. Raises OSError."""
        return self.path(path).read_text(encoding="utf-8", errors="surrogateescape").strip()

    def text_or_none(self, path: str) -> str | None:
        """As `text`, but None where the file cannot be read."""
        try:
            return self.text(path)
        except OSError:
            return None

    def glob(self, pattern: str) -> Iterator[Path]:
        """Matches below the root, sorted; none where a folder is missing."""
        yield from sorted(self.root.glob(pattern.lstrip("/")))

    @property
    def live(self) -> bool:
        """The root is this machine's own, so system calls may be asked too."""
        return self.root == Path("/")

    def run(self, command: Sequence[str], timeout_s: float = 5.0, check: bool = True) -> str:
        """Standard output of a command, C locale.

        Raises NotRead where it is missing, fails (with `check`) or outlasts the deadline.
        """
        try:
            # A session of its own, so that the deadline ends a wrapper's children too: they hold the pipe open.
            process = subprocess.Popen(
                command,
                env={**self.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise NotRead(f"{command[0]} not found") from error
        except OSError as error:
            raise NotRead(f"{command[0]}: {error.strerror}") from error
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise NotRead(f"{command[0]} gave no answer in {timeout_s:g} s") from error
        if check and process.returncode != 0:
            last = (errors or output).strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            raise NotRead(f"{command[0]}: {last[0]}")
        return output
