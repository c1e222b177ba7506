"""Ask all probes, and put their answers into a Snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

import msgspec

from gpudoctor.facts.base import Subject
from gpudoctor.facts.expected import Expected
from gpudoctor.isolation import Answers, Probe, forked, inline
from gpudoctor.probes.system import System
from gpudoctor.snapshot import Snapshot


def _of(module: str) -> Callable[[System], Subject]:
    """Its `read`.

    WHY imported by the child that calls it: what breaks an import (a damaged pynvml) then costs one subject, and all
    probes start sooner.
    """

    def read(system: System) -> Subject:
        fact: Subject = import_module(f"gpudoctor.probes.{module}").read(system)
        return fact

    return read


PROBES: tuple[Probe, ...] = (
    # The slowest first: they take the longest, so they start the earliest.
    Probe("torch_runtime", _of("torch_runtime"), deadline_s=45.0, quick=False),
    Probe("torch", _of("torch"), process="environment"),
    Probe("libraries", _of("libraries"), process="environment"),
    Probe("packages", _of("packages"), deadline_s=45.0, process="environment"),
    # A driver without persistence mode starts each board anew, which takes seconds a board.
    Probe("gpus", _of("gpu"), deadline_s=15.0),
    Probe("topology", _of("topology"), deadline_s=15.0),
    Probe("driver", _of("driver")),
    Probe("network", _of("network"), process="processes"),
    Probe("exposure", _of("exposure"), process="processes"),
    Probe("disks", _of("disks")),
    Probe("kernel_log", _of("kernel_log")),
    Probe("container", _of("container"), process="host"),
    Probe("host", _of("host"), process="host"),
    Probe("shm", _of("shm"), process="host"),
    Probe("limits", _of("limits"), process="host"),
    Probe("cpu", _of("cpu"), process="host"),
    Probe("clock", _of("clock"), process="host"),
    Probe("environment", _of("environment"), process="host"),
    Probe("measured", _of("measured"), deadline_s=280.0, quick=False, deep=True),
)


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
) -> Answers:
    """Of all probes at once, then of those that want the machine for themselves."""
    ends_at = time.monotonic() + timeout_s
    run = forked if hasattr(os, "fork") else inline
    yield from run([probe for probe in chosen if not probe.deep], system, timeout_s, meanwhile, at)
    if deep := [probe for probe in chosen if probe.deep]:
        import tempfile

        left_s = max(1.0, ends_at - time.monotonic())
        # A probe that is killed clears nothing away.
        with tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True) as scratch:
            system = msgspec.structs.replace(system, timeout_s=left_s, scratch=Path(scratch))
            yield from run(deep, system, left_s, _nothing, at)
