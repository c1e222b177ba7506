"""One line on standard error while a check runs, where a person watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Protocol

from gpudoctor.commands.output import say


class Progressing(Protocol):
    """One rank of a job."""

    @property
    def phase(self) -> str:
        """Of the agent in it."""


class JobProgress:
    """A line on standard error for each phase of a profiled job.

    The job writes to the same terminal, so nothing is drawn over or wiped away.
    """

    PHASES: ClassVar[dict[str, str]] = {
        "warm-up": "warm-up",
        "timing": "timing steps without a profiler",
        "tracing": "tracing",
    }

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __enter__(self) -> JobProgress:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def steps(self, ranks: Sequence[Progressing]) -> None:
        """What the ranks do; the phase of the first of them is told once."""
        if ranks:
            self._tell(self.PHASES.get(ranks[0].phase))

    def analysing(self) -> None:
        """The job has ended."""
        self._tell("analysing")

    def _tell(self, phase: str | None) -> None:
        if phase is not None and phase not in self._told:
            self._told.add(phase)
            say(phase)


class Progress:
    """`waiting for torch_runtime, packages`; wiped away at the end. Silent beyond a terminal."""

    def __init__(self, subjects: Iterable[str]) -> None:
        self._waiting = list(subjects)
        self._done = 0
        self._shown = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Progress:  # noqa: PYI034 - Self came with Python 3.11
        self._show()
        return self

    def answered(self, subject: str) -> None:
        """One subject less to wait for."""
        with suppress(ValueError):
            self._waiting.remove(subject)
        self._show()

    def at(self, text: str) -> None:
        """What a probe that takes long is doing."""
        self._done += 1
        self._write(f"measuring, stage {self._done}: {text}"[:79])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write("")

    def _show(self) -> None:
        if self._waiting:
            self._write(f"waiting for {', '.join(self._waiting)}"[:79])

    def _write(self, text: str) -> None:
        if self._shown:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()
