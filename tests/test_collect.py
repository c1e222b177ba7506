"""Probes run each in a process of its own: none can hold up, kill or leak into the check."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import psutil
import pytest

from gpudoctor import collect as room
from gpudoctor.collect import collect
from gpudoctor.facts.shm import Shm
from gpudoctor.isolation import Probe
from gpudoctor.probes.system import NotRead, System
from gpudoctor.snapshot import SUBJECTS, TEXT_SUBJECTS

Read = Callable[[System], Shm]


def _healthy(_: System) -> Shm:
    return Shm(total_bytes=7)


def _hangs(_: System) -> Shm:
    Event().wait()
    return Shm()


def _hangs_deaf(_: System) -> Shm:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return _hangs(_)


def _segfaults(_: System) -> Shm:
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)
    return Shm()


def _leaves(_: System) -> Shm:
    os._exit(3)


def _raises(_: System) -> Shm:
    raise ValueError("naïve \udcff")


def _cannot(_: System) -> Shm:
    raise NotRead("needs root")


def _shouts(_: System) -> Shm:
    os.write(1, b"noise")
    os.write(2, b"noise")
    return Shm(total_bytes=7)


def _is_huge(_: System) -> Shm:
    return Shm(file_system="x" * 10_000_000)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(**reads: Read) -> None:
        monkeypatch.setattr(room, "PROBES", tuple(Probe(name, read, deadline_s=0.3) for name, read in reads.items()))

    return put


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (_hangs, "no answer in 0.3 s"),
        (_hangs_deaf, "no answer in 0.3 s"),
        (_segfaults, "the probe died by SIGSEGV"),
        (_leaves, "the probe died"),
        (_raises, "ValueError: naïve ?"),
        (_cannot, "needs root"),
    ],
)
def test_a_probe_in_trouble_costs_its_own_subject_alone(read: Read, reason: str, probes: Callable[..., None]) -> None:
    probes(shm=_healthy, disks=read)
    snapshot = collect(System())
    assert snapshot.shm == Shm(total_bytes=7)
    assert snapshot.unread == {"disks": reason}


@pytest.mark.parametrize(
    ("read", "reason"),
    [(_hangs, "no answer in 0.3 s"), (_segfaults, "the probe died by SIGSEGV"), (_raises, "ValueError: naïve ?")],
)
def test_probes_behind_one_in_trouble_in_the_same_process_are_still_read(
    read: Read, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = {"shm": _healthy, "disks": read, "cpu": read, "host": _healthy}
    together = tuple(Probe(name, each, deadline_s=0.3, process="one") for name, each in order.items())
    monkeypatch.setattr(room, "PROBES", together)
    answered: list[str] = []
    snapshot = collect(System(), progress=answered.append)
    assert snapshot.shm == Shm(total_bytes=7)
    assert answered == ["shm", "disks", "cpu", "host"]
    assert snapshot.unread == {"disks": reason, "cpu": reason}


def test_probes_of_one_process_share_the_time_limit_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROBES", tuple(Probe(name, _hangs, process="one") for name in ("shm", "disks")))
    start = time.monotonic()
    assert set(collect(System(), timeout_s=0.2).unread.values()) == {"no answer in 0.2 s", "no time left of 0.2 s"}
    assert time.monotonic() - start < 3


def test_what_a_probe_prints_goes_nowhere(probes: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    probes(shm=_shouts)
    assert collect(System()).shm == Shm(total_bytes=7)
    assert capfd.readouterr() == ("", "")


def test_an_answer_larger_than_a_pipe_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROBES", (Probe("shm", _is_huge, deadline_s=30.0),))
    shm = collect(System()).shm
    assert shm is not None
    assert len(shm.file_system or "") == 10_000_000


def test_probes_run_at_once_and_the_whole_keeps_its_time_limit(probes: Callable[..., None]) -> None:
    probes(**dict.fromkeys(SUBJECTS, _hangs))
    start = time.monotonic()
    snapshot = collect(System(), timeout_s=0.1)
    assert time.monotonic() - start < 3
    assert set(snapshot.unread.values()) == {"no answer in 0.1 s"}


def test_no_process_is_left_behind(probes: Callable[..., None], tmp_path: Path) -> None:
    def hangs_with_a_child(system: System) -> Shm:
        system.run(["sh", "-c", f"sleep 1000 & echo $! >{tmp_path}/pid; wait"], timeout_s=0.2)
        return Shm()

    probes(shm=_hangs, disks=hangs_with_a_child, cpu=_healthy)
    collect(System())
    assert [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE] == []
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_only_the_subjects_asked_for_are_read(probes: Callable[..., None]) -> None:
    probes(shm=_healthy, disks=_hangs)
    seen: list[str] = []
    snapshot = collect(System(), subjects=["shm"], progress=seen.append)
    assert (snapshot.unread, seen) == ({}, ["shm"])


def test_quick_leaves_out_the_slow_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROBES", (Probe("shm", _healthy), Probe("disks", _hangs, quick=False)))
    assert collect(System(quick=True)).unread == {}


def test_what_wants_the_machine_for_itself_is_read_after_all_others_and_only_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def works(system: System) -> Shm:
        system.tell("GPU 0:\nproducts")
        return Shm(total_bytes=8)

    monkeypatch.setattr(room, "PROBES", (Probe("measured", works, deep=True), Probe("shm", _healthy)))
    seen: list[str] = []
    assert collect(System(), progress=seen.append).measured is None
    snapshot = collect(System(deep=True), progress=seen.append, at=lambda text: seen.append(f"at {text}"))
    assert seen == ["shm", "shm", "at GPU 0: products", "measured"]
    assert snapshot.measured is not None


def test_every_subject_has_one_probe_or_comes_from_texts_alone() -> None:
    assert sorted([*(probe.subject for probe in room.PROBES), *TEXT_SUBJECTS]) == sorted(SUBJECTS)


def test_without_fork_the_probes_run_one_after_the_other(
    probes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes(shm=_healthy, disks=_cannot)
    monkeypatch.delattr(os, "fork")
    snapshot = collect(System())
    assert (snapshot.shm, snapshot.unread) == (Shm(total_bytes=7), {"disks": "needs root"})


def test_a_killed_check_leaves_no_probe_running_past_its_deadline(tmp_path: Path) -> None:
    """Nobody keeps the deadline any more, so the probe's own alarm ends it."""
    script = tmp_path / "job.py"
    script.write_text(
        "import os, signal\n"
        "from threading import Event\n"
        "from gpudoctor import collect as room\n"
        "from gpudoctor.isolation import Probe\n"
        "def hangs(system):\n"
        "    print(os.getpid(), file=open('probe.pid', 'w'), flush=True)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    Event().wait()\n"
        "room.PROBES = (Probe('shm', hangs, deadline_s=0.2),)\n"
        "room.collect(room.System())\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int((tmp_path / "probe.pid").read_text())
    with suppress(psutil.NoSuchProcess):
        # 1.2 s is the probe's deadline with its grace; wait returns at once when it ends, and raises after 10 s.
        psutil.Process(pid).wait(timeout=10)
