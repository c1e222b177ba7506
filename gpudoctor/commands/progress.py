"""One line on standard error while a check runs, where a person watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType


class Progress:
    """`waiting for torch_runtime, packages`; wiped away at the end. Silent beyond a terminal."""

    def __init__(self, subjects: Iterable[str]) -> None:
        self._waiting = list(subjects)
        self._shown = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Progress:  # noqa: PYI034 - Self came with Python 3.11
        self._show()
        return self

    def answered(self, subject: str) -> None:
        """One subject less to wait for."""
        with suppress(ValueError):
            self._waiting.remove(subject)
        self._show()

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
