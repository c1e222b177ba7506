"""Shared memory: recorded machines, and a real small tmpfs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.shm import Shm
from gpudoctor.probes import shm
from gpudoctor.probes.system import System

Record = Callable[[dict[str, str]], System]

TMPFS = "25 24 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k"
LONG_AGO = 1_000_000_000


def _machine(record: Record, files: tuple[str, ...], **processes: str) -> System:
    """Files in /dev/shm, and processes by pid (`p12`) with what they have mapped."""
    machine = {"/proc/self/mountinfo": TMPFS, "/dev/shm/.keep": ""}
    machine |= {f"/dev/shm/{name}": "x" * 5000 for name in files}
    for process, maps in processes.items():
        machine |= {f"/proc/{process[1:]}/maps": maps, f"/proc/{process[1:]}/fd/.keep": ""}
    system = record(machine)
    for keep in (*system.glob("/proc/*/fd/.keep"), system.path("/dev/shm/.keep")):
        keep.unlink()
    for name in files:
        os.utime(system.path(f"/dev/shm/{name}"), (LONG_AGO, LONG_AGO))
    namespaces = system.path("/proc/self/ns")
    namespaces.mkdir(parents=True)
    (namespaces / "pid").symlink_to(shm.FIRST_PIDS)
    (namespaces / "ipc").symlink_to(shm.FIRST_IPC)
    return system


def _names(found: Shm) -> list[str]:
    assert found.stale is not None
    return [file.name for file in found.stale]


def test_files_that_nobody_has_mapped_are_stale(record: Record) -> None:
    system = _machine(
        record, ("torch_4711_12_0", "nccl-AbCdEf", "wayland-cursor", "vscode-ipc"), p1="7f00-7f01 r-xp /bin/init"
    )
    found = shm.read(system)
    assert _names(found) == ["nccl-AbCdEf", "torch_4711_12_0"]
    assert found.stale_bytes == sum(file.size_bytes or 0 for file in found.stale or ())
    assert found.stale_bytes >= 10000
    assert found.unread == {}


def test_a_file_that_is_mapped_from_any_path_is_in_use(record: Record) -> None:
    maps = "7f00-7f01 rw-s 00000000 00:17 9 /dev/shm/nccl-AbCdEf\n7f02-7f03 rw-s 0 00:17 8 /mnt/torch_4711_12_0"
    assert _names(shm.read(_machine(record, ("torch_4711_12_0", "nccl-AbCdEf"), p99=maps))) == []


def test_a_file_that_is_open_is_in_use(record: Record) -> None:
    system = _machine(record, ("psm_0a1b2c",), p99="")
    (system.path("/proc/99/fd") / "3").symlink_to("/dev/shm/psm_0a1b2c")
    assert _names(shm.read(system)) == []


def test_a_torch_file_whose_creator_lives_is_in_use(record: Record) -> None:
    assert _names(shm.read(_machine(record, ("torch_99_12_0",), p99=""))) == []


def test_a_process_that_may_not_be_looked_into_could_use_its_users_files(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = _machine(record, ("nccl-AbCdEf",), p99="")

    def forbidden(path: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    found = shm.read(system)
    assert found.stale is None
    assert "needs root" in found.unread["stale"]


def test_files_of_other_users_are_not_judged_without_root(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may hide other users' processes altogether."""
    system = _machine(record, ("nccl-AbCdEf",))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert shm.read(system).stale is None


def test_a_container_with_the_hosts_shared_memory_cannot_tell(record: Record) -> None:
    system = _machine(record, ("nccl-AbCdEf",))
    pid = system.path("/proc/self/ns/pid")
    pid.unlink()
    pid.symlink_to("pid:[4026532900]")
    found = shm.read(system)
    assert (found.stale, found.shared_unseen) == (None, True)
    assert "host" in found.unread["stale"]
    ipc = system.path("/proc/self/ns/ipc")
    ipc.unlink()
    ipc.symlink_to("ipc:[4026532901]")
    assert _names(shm.read(system)) == ["nccl-AbCdEf"]


def test_a_python_segment_may_wait_a_minute_for_the_process_it_is_handed_to(record: Record) -> None:
    system = _machine(record, ("psm_0a1b2c", "nccl-AbCdEf"))
    os.utime(system.path("/dev/shm/psm_0a1b2c"))
    assert _names(shm.read(system)) == ["nccl-AbCdEf"]


def test_a_recorded_machine_has_the_size_of_its_mount_options(record: Record) -> None:
    found = shm.read(_machine(record, ()))
    assert (found.total_bytes, found.free_bytes, found.file_system) == (64 * 2**20, None, "tmpfs")


def test_no_shared_memory_is_an_answer(record: Record) -> None:
    assert shm.read(record({})) == Shm(exists=False)


# In a mount namespace of its own, a tmpfs of the given size hides /dev/shm while the script runs.
READ = """
import os, subprocess, sys
import msgspec
from gpudoctor.probes import shm
from gpudoctor.probes.system import System
exec(sys.argv[1])
before = sorted(os.listdir("/dev/shm"))
print(msgspec.json.encode(shm.read(System())).decode())
assert sorted(os.listdir("/dev/shm")) == before, "the probe left something behind"
"""


def _small(size: str, prepare: str = "", options: str = "") -> dict[str, Any]:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    script = 'mount -t tmpfs -o "$1" tmpfs /dev/shm || exit 77; exec "$2" -c "$3" "$4"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", f"size={size}{options}", sys.executable, READ, prepare]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount here")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_real_tmpfs_has_its_size() -> None:
    found = _small("64m")
    assert (found["total_bytes"], found["free_bytes"]) == (64 * 2**20, 64 * 2**20)
    assert (found["exists"], found["writable"], found["file_system"]) == (True, True, "tmpfs")
    assert found["stale"] == []


def test_a_real_full_tmpfs_has_nothing_free_and_is_still_writable() -> None:
    found = _small("1m", "open('/dev/shm/batch', 'wb').write(bytes(2**20))")
    assert (found["free_bytes"], found["writable"]) == (0, True)


def test_a_real_tmpfs_out_of_files_says_so() -> None:
    found = _small("1m", "[open(f'/dev/shm/{i}', 'w') for i in range(4)]", options=",nr_inodes=5")
    assert found["inodes_free"] == 0


def test_a_real_tmpfs_without_limits_gives_none() -> None:
    found = _small("0", options=",nr_inodes=0")
    assert {"total_bytes", "free_bytes", "inodes_free"}.isdisjoint(found)


def test_a_real_read_only_tmpfs_is_not_writable() -> None:
    assert _small("1m", "subprocess.run(['mount', '-o', 'remount,ro', '/dev/shm'], check=True)")["writable"] is False


def test_a_real_segment_is_in_use_until_its_process_is_gone() -> None:
    make = "import mmap; f = open('/dev/shm/nccl-AbCdEf', 'w+b'); f.truncate(4096); kept = mmap.mmap(f.fileno(), 4096)"
    assert _small("1m", make + "; f.close()")["stale"] == []
    gone = _small("1m", f"subprocess.run([sys.executable, '-c', {make!r}], check=True)")
    if "stale" not in gone:
        pytest.skip(gone["unread"]["stale"])
    assert [file["name"] for file in gone["stale"]] == ["nccl-AbCdEf"]
