"""Records of /dev/kmsg, and who may read them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.probes import kernel_log
from gpudoctor.probes.kernel_log import kmsg_text, read
from gpudoctor.probes.system import NotRead, System


def _run(answers: dict[str, str]) -> Callable[..., str]:
    def run(self: System, command: tuple[str, ...], timeout_s: float = 5.0, check: bool = True) -> str:
        if command[0] not in answers:
            raise NotRead(f"{command[0]}: read kernel buffer failed: Operation not permitted")
        return answers[command[0]]

    return run


def _denied(system: System) -> list[bytes]:
    raise PermissionError(1, "Operation not permitted")


def test_records_become_the_lines_dmesg_prints() -> None:
    records = [
        b"4,1203,214113524,-;NVRM: API mismatch: two versions,\\x0aNVRM: make sure\n SUBSYSTEM=pci\n DEVICE=+pci:1\n",
        b"3,1204,9000000,-;NVRM: Xid (PCI:0000:0b:00): 31, pid=7, name=a.out, Ch 8\n",
    ]
    text = kmsg_text(records)
    assert text.startswith("[  214.113524] NVRM: API mismatch")
    assert "SUBSYSTEM" not in text
    assert text.endswith("[    9.000000] NVRM: Xid (PCI:0000:0b:00): 31, pid=7, name=a.out, Ch 8")


def test_a_recorded_log_gives_ages(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev/kmsg").write_text("[  100.000000] NVRM: Xid (PCI:0000:0b:00): 48, DBE\n")
    (tmp_path / "proc/uptime").write_text("160.0 300.0\n")
    (event,) = read(System(root=tmp_path, environ={})).xids
    assert event.age_s == 60.0


def test_dmesg_is_asked_where_the_device_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_records", _denied)
    monkeypatch.setattr(System, "run", _run({"dmesg": "[ 1.0] NVRM: Xid (PCI:0000:0b:00): 48, DBE\n"}))
    log = read(System())
    assert (log.source, len(log.xids)) == ("dmesg", 1)


def test_the_journal_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_records", _denied)
    monkeypatch.setattr(
        System, "run", _run({"journalctl": "[ 1.0] node kernel: NVRM: Xid (PCI:0000:0b:00): 48, DBE\n"})
    )
    log = read(System())
    assert (log.source, len(log.xids)) == ("journalctl", 1)


def test_where_nobody_answers_it_says_that_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_records", _denied)
    monkeypatch.setattr(System, "run", _run({}))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotRead, match="needs root"):
        read(System())


def test_this_machines_own_log_is_read_without_waiting() -> None:
    try:
        log = read(System())
    except NotRead as error:
        pytest.skip(str(error))
    assert log.source in {"/dev/kmsg", "dmesg", "journalctl"}
