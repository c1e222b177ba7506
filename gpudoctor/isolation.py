"""Run probes in processes of their own, each with its deadline, so that none can hold up or kill the check."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from gpudoctor.facts.base import Subject
from gpudoctor.probes.system import NotRead, System


class Probe(msgspec.Struct, frozen=True):
    """How one subject of the snapshot is read."""

    subject: str
    read: Callable[[System], Subject]
    deadline_s: float = 5.0
    quick: bool = True
    """Part of `check --quick`."""
    process: str = ""
    """Those of one name share a process and are read in order, since each process costs a quick check a hundredth of
    its time. Empty for one of its own."""
    deep: bool = False
    """Part of `check --deep` alone, and read after all others: what works must not be disturbed."""


class Answer(msgspec.Struct, frozen=True):
    """A fact as JSON, or else the reason why there is none."""

    fact: bytes | None = None
    reason: str = ""


Tell = Callable[[str], None]
Answers = Iterator[tuple[Probe, Answer]]


def inline(probes: list[Probe], system: System, timeout_s: float, meanwhile: Callable[[], None], at: Tell) -> Answers:
    """Where there is no fork (Windows): one after the other, until the time is up."""
    meanwhile()
    system = msgspec.structs.replace(system, tell=at)
    ends_at = time.monotonic() + timeout_s
    for probe in probes:
        yield probe, _no_time(timeout_s) if time.monotonic() > ends_at else _answer(probe, system)


def forked(probes: list[Probe], system: System, timeout_s: float, meanwhile: Callable[[], None], at: Tell) -> Answers:
    """WHY fork: a driver call that hangs in the kernel or crashes can then neither hold up nor kill the check."""
    with selectors.DefaultSelector() as selector:
        children = _Children(selector, system, timeout_s, at)
        try:
            for group in _groups(probes):
                children.start(group)
            meanwhile()
            while children.by_pipe:
                nearest = min(child.ends_at for child in children.by_pipe.values())
                for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
                    yield from children.read(children.by_pipe[key.fd])
                yield from children.end_late_ones()
        finally:
            for child in children.by_pipe.values():
                _kill_commands(child.pid)
                _kill(child.pid)


class _Children:
    """Those that have yet to answer."""

    def __init__(self, selector: selectors.BaseSelector, system: System, timeout_s: float, at: Tell) -> None:
        self.by_pipe: dict[int, _Child] = {}
        self._selector, self._system, self._timeout_s, self._at = selector, system, timeout_s, at
        self._ends_at = time.monotonic() + timeout_s

    def start(self, probes: list[Probe]) -> None:
        """One process, unless there is nothing left for it to answer."""
        if not probes:
            return
        with _signals_held():  # One between the two lines would leave a child that nobody knows.
            child = _start(probes, self._system, self._timeout_s)
            self.by_pipe[child.pipe] = child
        self._wait_for_next(child)
        self._selector.register(child.pipe, selectors.EVENT_READ)

    def read(self, child: _Child) -> Answers:
        """What has come of it. After a death the probes behind go on in another process."""
        chunk = os.read(child.pipe, 1 << 16)
        for line in child.lines(chunk):
            if line[:1] == _PROGRESS:
                self._at(line[1:].decode(errors="replace"))
            else:
                yield child.probes.pop(0), _decoded(line)
                self._wait_for_next(child)
        if not child.probes:
            self._end(child)
        elif not chunk:
            yield child.probes.pop(0), Answer(reason=_death(self._end(child)))
            self.start(child.probes)

    def end_late_ones(self) -> Answers:
        """The probes behind go on in another process."""
        for child in [child for child in self.by_pipe.values() if child.ends_at <= time.monotonic()]:
            _kill_commands(child.pid)
            self._end(child)
            late = child.probes.pop(0)
            yield late, Answer(reason=f"no answer in {min(late.deadline_s, self._timeout_s):g} s")
            if time.monotonic() < self._ends_at:
                self.start(child.probes)
            else:
                yield from ((probe, _no_time(self._timeout_s)) for probe in child.probes)

    def _wait_for_next(self, child: _Child) -> None:
        """Its time runs from now."""
        if child.probes:
            limit_s = min(child.probes[0].deadline_s, self._timeout_s)
            child.ends_at = min(self._ends_at, time.monotonic() + limit_s)

    def _end(self, child: _Child) -> int | None:
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        del self.by_pipe[child.pipe]
        return _kill(child.pid)


# A line of a child's begins with a sign: its answer is a fact, or a reason; or it tells what it is at.
_FACT, _REASON, _PROGRESS = b"+", b"-", b"="


class _Child(msgspec.Struct):
    """One process and the probes it has yet to answer; it is at the first of them."""

    probes: list[Probe]
    pid: int
    pipe: int
    ends_at: float = 0.0
    data: bytearray = msgspec.field(default_factory=bytearray)

    def lines(self, chunk: bytes) -> list[bytes]:
        """Those that the chunk makes whole; the rest is kept."""
        self.data += chunk
        if b"\n" not in chunk:
            return []
        *whole, rest = bytes(self.data).split(b"\n")
        self.data = bytearray(rest)
        return whole


def _groups(probes: Iterable[Probe]) -> Iterable[list[Probe]]:
    groups: dict[str, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(probe.process or probe.subject, []).append(probe)
    return groups.values()


def _start(probes: list[Probe], system: System, timeout_s: float) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(probes, system, writing, timeout_s)
    os.close(writing)
    return _Child(probes, pid, reading)


def _be_child(probes: list[Probe], system: System, writing: int, timeout_s: float) -> None:
    """Never returns."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        with os.fdopen(writing, "wb") as pipe:

            def tell(text: str) -> None:
                pipe.write(_PROGRESS + " ".join(text.split()).encode(errors="replace") + b"\n")
                pipe.flush()

            system = msgspec.structs.replace(system, tell=tell)
            for probe in probes:
                # Should gpudoctor itself be killed, nobody is left to keep the deadline.
                signal.setitimer(signal.ITIMER_REAL, min(probe.deadline_s, timeout_s) + 1.0)
                pipe.write(_encoded(_answer(probe, system)) + b"\n")
                pipe.flush()
    finally:
        os._exit(0)


def _answer(probe: Probe, system: System) -> Answer:
    try:
        return Answer(fact=_as_json(probe.read(system)))
    except NotRead as error:
        return Answer(reason=str(error))
    except Exception as error:
        return Answer(reason=f"{type(error).__name__}: {error}")


def _as_json(fact: Subject) -> bytes:
    try:
        return msgspec.json.encode(fact)
    except UnicodeEncodeError:
        import json

        # A path or a variable that is not UTF-8 costs its odd letters, not the whole subject.
        return json.dumps(msgspec.to_builtins(fact), ensure_ascii=False).encode(errors="replace")


def _encoded(answer: Answer) -> bytes:
    if answer.fact is not None:
        return _FACT + answer.fact
    return _REASON + " ".join(answer.reason.split()).encode(errors="replace")


def _decoded(line: bytes) -> Answer:
    return Answer(fact=line[1:]) if line[:1] == _FACT else Answer(reason=line[1:].decode())


_ENDING = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


@contextmanager
def _signals_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _no_time(timeout_s: float) -> Answer:
    return Answer(reason=f"no time left of {timeout_s:g} s")


def _death(status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        return f"the probe died by {signal.Signals(os.WTERMSIG(status)).name}"
    return "the probe died"


def _kill_commands(pid: int) -> None:
    """End the commands that a probe waits for: each has a session of its own, which the probe's end would not reach."""
    import psutil

    with suppress(psutil.Error):
        psutil.Process(pid).suspend()  # Else it would go on to its next command.
        for command in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                command.kill()


def _kill(pid: int) -> int | None:
    """End its whole session. None where it cannot die (blocked in the kernel): it is then left behind."""
    wait_s = 0.0001
    while wait_s < 0.1:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        time.sleep(wait_s)
        wait_s *= 1.5  # Most are gone at once, and there are many of them.
    return None
