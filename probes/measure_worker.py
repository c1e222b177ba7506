"""One child that does stages as it is asked, and how each of them ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

SCRIPT = Path(__file__).with_name("measure_child.py")
MARK = "@gpudoctor "
LOOK_S = 0.05
"""Between two looks at a board that works."""
ERRORS_KEPT = 6000
FRAMES = 3


@dataclass(frozen=True)
class Answer:
    """Facts, or how the stage ended without."""

    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    signal: int | None = None
    exit_code: int | None = None
    timed_out: bool = False
    deadline_s: float | None = None
    stack: str | None = None

    @property
    def failed(self) -> bool:
        """It raised, died or hung."""
        return self.error is not None or self.signal is not None or self.exit_code is not None or self.timed_out


class Worker:
    """A child process, started when it is first asked and again after each that died."""

    def __init__(self, python: str, environ: dict[str, str]) -> None:
        self._command = [python, str(SCRIPT)]
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._data = bytearray()
        self._deadline_s = self._ends_at = 0.0

    def __enter__(self) -> Worker:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self, stage: str, arguments: list[Any], deadline_s: float, look: Callable[[], None] | None = None
    ) -> Answer:
        """Its answer. `look` is called again and again while it works."""
        self.begin(stage, arguments, deadline_s)
        return self.wait(look)

    def wait(self, look: Callable[[], None] | None = None) -> Answer:
        """For what was begun, up to its deadline."""
        while (left_s := self._ends_at - time.monotonic()) > 0:
            if (answer := self.poll(LOOK_S if look else min(left_s, 0.5))) is not None:
                return answer
            if look is not None:
                look()
        # An answer that came while nobody looked is in time.
        return self.poll(0) or self.too_late()

    def begin(self, stage: str, arguments: list[Any], deadline_s: float) -> None:
        """Ask without waiting."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        self._deadline_s, self._ends_at = deadline_s, time.monotonic() + deadline_s
        process = self._process
        if process is not None and process.stdin is not None:
            line = json.dumps({"stage": stage, "arguments": arguments, "deadline_s": deadline_s}) + "\n"
            with suppress(BrokenPipeError):  # It died already: what follows tells how.
                process.stdin.write(line.encode())
                process.stdin.flush()

    def poll(self, wait_s: float) -> Answer | None:
        """The answer, if it comes within the time."""
        process = self._process
        if process is None or process.stdout is None:
            return Answer(error="not started")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(wait_s)
        chunk = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        self._data += chunk
        if (answer := self._told()) is not None:
            return answer
        # A worker of a loader may hold the pipe open although the child is gone.
        if (ready and not chunk) or (not ready and process.poll() is not None):
            return self._died()
        return None

    def too_late(self) -> Answer:
        """It is ended. Before that it wrote the stacks of its threads."""
        self._kill()
        answer = Answer(timed_out=True, deadline_s=self._deadline_s, stack=_frames(self._words()))
        self.close()
        return answer

    def close(self) -> None:
        """End the child and all that it started."""
        self._kill()
        for file in (self._errors, *((self._process.stdin, self._process.stdout) if self._process else ())):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._process, self._errors = None, None
        self._data.clear()

    def _start(self) -> None:
        # A file, not a pipe: nobody has to read it, and it cannot fill up.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def _told(self) -> Answer | None:
        while b"\n" in self._data:
            line, _, rest = bytes(self._data).partition(b"\n")
            self._data = bytearray(rest)
            text = line.decode(errors="replace")
            if not text.startswith(MARK):
                continue
            try:
                told = json.loads(text[len(MARK) :])
            except ValueError:
                continue
            if "done" in told:
                if told.get("last"):
                    self.close()  # After an error of CUDA's a process can do nothing more.
                return Answer(facts=told.get("facts") or {}, error=told.get("error"))
        return None

    def _died(self) -> Answer:
        process = self._process
        if process is None:
            return Answer(error="not started")
        try:
            code = process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._kill()
            code = process.wait(2.0)
        words = self._words()
        told = [line.strip() for line in words.partition("Fatal Python error")[0].splitlines() if line.strip()]
        error = told[-1][:600] if told else None
        self.close()
        if code < 0:
            return Answer(error=error, signal=-code, stack=_frames(words))
        return Answer(error=error, exit_code=code, stack=_frames(words))

    def _words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - ERRORS_KEPT))
        return self._errors.read().decode("utf-8", errors="replace")

    def _kill(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # blocked in the kernel: it cannot even be killed


def _frames(words: str) -> str | None:
    """The innermost frames of the main thread, as faulthandler writes them, without folders."""
    stack = words.rpartition("(most recent call first):")[2]
    lines = [line.strip() for line in stack.splitlines() if line.strip().startswith("File ")]
    told = [line.replace("File ", "", 1) for line in lines[:FRAMES]]
    return " < ".join(f"{_file_name(line)}" for line in told) or None


def _file_name(line: str) -> str:
    path, _, rest = line.partition('", ')
    return f"{path.rpartition('/')[2]} {rest}".strip().strip('"')
