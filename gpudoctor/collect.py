"""Run the probes, each in a process of its own with a deadline, and put their answers into a Snapshot."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gpudoctor.facts.base import Subject
from gpudoctor.facts.expected import Expected
from gpudoctor.probes import (
    clock,
    container,
    cpu,
    disks,
    driver,
    environment,
    exposure,
    gpu,
    host,
    kernel_log,
    libraries,
    limits,
    network,
    packages,
    shm,
    topology,
    torch,
    torch_runtime,
)
from gpudoctor.probes.system import NotRead, System
from gpudoctor.snapshot import Snapshot


@dataclass(frozen=True)
class Probe:
    """How one subject of the snapshot is read."""

    subject: str
    read: Callable[[System], Subject]
    deadline_s: float = 5.0
    quick: bool = True
    """Part of `check --quick`."""
    deep: bool = False
    """Part of `check --deep` alone, and read after all others: what works must not be disturbed."""


def _measured(system: System) -> Subject:
    from gpudoctor.probes import measured  # here: a quick check is to load nothing that it does not use

    return measured.read(system)


PROBES: tuple[Probe, ...] = (
    # The slowest first: they take the longest, so they start the earliest.
    Probe("torch_runtime", torch_runtime.read, deadline_s=45.0, quick=False),
    Probe("packages", packages.read, deadline_s=45.0),
    # A driver without persistence mode starts each board anew, which takes seconds a board.
    Probe("gpus", gpu.read, deadline_s=15.0),
    Probe("topology", topology.read, deadline_s=15.0),
    Probe("driver", driver.read),
    Probe("torch", torch.read),
    Probe("libraries", libraries.read),
    Probe("disks", disks.read),
    Probe("kernel_log", kernel_log.read),
    Probe("exposure", exposure.read),
    Probe("network", network.read),
    Probe("container", container.read),
    Probe("host", host.read),
    Probe("shm", shm.read),
    Probe("limits", limits.read),
    Probe("cpu", cpu.read),
    Probe("clock", clock.read),
    Probe("environment", environment.read),
    Probe("measured", _measured, deadline_s=280.0, quick=False, deep=True),
)


@dataclass(frozen=True)
class _Answer:
    """A fact as JSON, or else the reason why there is none. Goes through a pipe as a sign and the text behind it."""

    fact: bytes | None = None
    reason: str = ""

    def to_bytes(self) -> bytes:
        return b"+" + self.fact if self.fact is not None else b"-" + self.reason.encode(errors="replace")

    @classmethod
    def from_bytes(cls, data: bytes) -> _Answer:
        return cls(fact=data[1:]) if data[:1] == b"+" else cls(reason=data[1:].decode())


_PROGRESS = b"="


@dataclass
class _Child:
    probe: Probe
    pid: int
    pipe: int
    ends_at: float
    data: bytearray = field(default_factory=bytearray)


def collect(
    system: System,
    *,
    expected: Expected | None = None,
    subjects: Iterable[str] | None = None,
    timeout_s: float = 60.0,
    progress: Callable[[str], None] | None = None,
    at: Callable[[str], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Snapshot:
    """Read the subjects (default: all of the level) at once.

    None can outlast its deadline, nor all together `timeout_s`.

    A probe that raises, dies or hangs costs its own subject, which is then in `unread` with the reason.
    `progress` is called with each subject as it is answered, `at` with what a probe that takes long is doing, and
    `meanwhile` once when all probes are on their way.
    """
    wanted = None if subjects is None else set(subjects)
    chosen = [probe for probe in PROBES if (wanted is None or probe.subject in wanted) and _is_of_level(probe, system)]
    facts: list[bytes] = []
    unread: dict[str, str] = {}
    for probe, answer in _answers(chosen, system, timeout_s, meanwhile or _nothing, at or _nothing):
        if answer.fact is not None:
            facts.append(b'"%s":%s' % (probe.subject.encode(), answer.fact))
        else:
            unread[probe.subject] = answer.reason
        if progress is not None:
            progress(probe.subject)
    return msgspec.structs.replace(
        msgspec.json.decode(b"{%s}" % b",".join(facts), type=Snapshot),
        taken_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        expected=expected or Expected(),
        unread={probe.subject: unread[probe.subject] for probe in chosen if probe.subject in unread},
    )


def _nothing(*_: str) -> None:
    return None


def _is_of_level(probe: Probe, system: System) -> bool:
    return (probe.quick or not system.quick) and (system.deep or not probe.deep)


def _answers(
    chosen: list[Probe],
    system: System,
    timeout_s: float,
    meanwhile: Callable[[], None],
    at: Callable[[str], None],
) -> Iterator[tuple[Probe, _Answer]]:
    """Of all probes at once, then of those that want the machine for themselves."""
    ends_at = time.monotonic() + timeout_s
    run = _run_forked if hasattr(os, "fork") else _run_inline
    yield from run([probe for probe in chosen if not probe.deep], system, timeout_s, meanwhile, at)
    if deep := [probe for probe in chosen if probe.deep]:
        import tempfile

        left_s = max(1.0, ends_at - time.monotonic())
        # A probe that is killed clears nothing away.
        with tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True) as scratch:
            system = replace(system, timeout_s=left_s, scratch=Path(scratch))
            yield from run(deep, system, left_s, _nothing, at)


_ENDING = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


def _answer(probe: Probe, system: System) -> _Answer:
    try:
        return _Answer(fact=_encoded(probe.read(system)))
    except NotRead as error:
        return _Answer(reason=str(error))
    except Exception as error:
        return _Answer(reason=f"{type(error).__name__}: {error}")


def _encoded(fact: Subject) -> bytes:
    try:
        return msgspec.json.encode(fact)
    except UnicodeEncodeError:
        import json

        # A path or a variable that is not UTF-8 costs its odd letters, not the whole subject.
        return json.dumps(msgspec.to_builtins(fact), ensure_ascii=False).encode(errors="replace")


def _run_inline(
    probes: list[Probe],
    system: System,
    timeout_s: float,
    meanwhile: Callable[[], None],
    at: Callable[[str], None],
) -> Iterable[tuple[Probe, _Answer]]:
    """Where there is no fork (Windows): one after the other, until the time is up."""
    meanwhile()
    system = replace(system, tell=at)
    ends_at = time.monotonic() + timeout_s
    for probe in probes:
        late = time.monotonic() > ends_at
        yield probe, _Answer(reason=f"no time left of {timeout_s:g} s") if late else _answer(probe, system)


def _run_forked(
    probes: list[Probe],
    system: System,
    timeout_s: float,
    meanwhile: Callable[[], None],
    at: Callable[[str], None],
) -> Iterable[tuple[Probe, _Answer]]:
    """WHY fork: a driver call that hangs in the kernel or crashes can then neither hold up nor kill the check."""
    children: dict[int, _Child] = {}
    try:
        with selectors.DefaultSelector() as selector:
            for probe in probes:
                with _signals_held():  # One between the two lines would leave a child that nobody knows.
                    child = _start(probe, system, min(probe.deadline_s, timeout_s))
                    children[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            meanwhile()
            while children:
                nearest = min(child.ends_at for child in children.values())
                for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
                    child = children[key.fd]
                    if chunk := os.read(child.pipe, 1 << 16):
                        child.data += chunk
                        for line in _told(child.data):
                            at(line)
                        continue
                    yield child.probe, _reap(child, selector, children)
                for child in [child for child in children.values() if child.ends_at <= time.monotonic()]:
                    _kill_commands(child.pid)
                    _reap(child, selector, children)
                    limit_s = min(child.probe.deadline_s, timeout_s)
                    yield child.probe, _Answer(reason=f"no answer in {limit_s:g} s")
    finally:
        for child in children.values():
            _kill_commands(child.pid)
            _kill(child.pid)


def _told(data: bytearray) -> Iterator[str]:
    """Take off the front what the probe says of its progress: lines before its answer."""
    while data[:1] == _PROGRESS and b"\n" in data:
        line, _, _ = bytes(data).partition(b"\n")
        del data[: len(line) + 1]
        yield line[1:].decode(errors="replace")


@contextmanager
def _signals_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(probe: Probe, system: System, deadline_s: float) -> _Child:
    reading, writing = os.pipe()
    ends_at = time.monotonic() + deadline_s
    pid = os.fork()
    if pid == 0:
        _be_child(probe, system, writing, deadline_s)
    os.close(writing)
    return _Child(probe, pid, reading, ends_at)


def _be_child(probe: Probe, system: System, writing: int, deadline_s: float) -> None:
    """Never returns."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        # Should gpudoctor itself be killed, nobody is left to keep the deadline.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, deadline_s + 1.0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        with os.fdopen(writing, "wb") as pipe:

            def tell(text: str) -> None:
                pipe.write(_PROGRESS + " ".join(text.split()).encode(errors="replace") + b"\n")
                pipe.flush()

            pipe.write(_answer(probe, replace(system, tell=tell)).to_bytes())
    finally:
        os._exit(0)


def _reap(child: _Child, selector: selectors.BaseSelector, children: dict[int, _Child]) -> _Answer:
    """Its answer, or how it died."""
    selector.unregister(child.pipe)
    os.close(child.pipe)
    del children[child.pipe]
    status = _kill(child.pid)
    if child.data:
        return _Answer.from_bytes(bytes(child.data))
    if status is not None and os.WIFSIGNALED(status):
        return _Answer(reason=f"the probe died by {signal.Signals(os.WTERMSIG(status)).name}")
    return _Answer(reason="the probe died")


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
