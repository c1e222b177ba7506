"""Rules on the folders a job writes to."""

from typing import Any

import pytest

from gpudoctor.facts.disks import Disks, Folder
from gpudoctor.rules.disks import disk_nearly_full
from gpudoctor.snapshot import Snapshot

MIB, GIB = 2**20, 2**30


def _machine(**fields: Any) -> Snapshot:
    folder: dict[str, Any] = {
        "role": "temporary",
        "path": "/tmp",
        "writable": True,
        "total_bytes": 400 * GIB,
        "free_bytes": 300 * GIB,
    }
    return Snapshot(disks=Disks(folders=(Folder(**(folder | fields)),)))


def test_disk_nearly_full_names_the_folder_and_its_job() -> None:
    (found,) = disk_nearly_full.judge(_machine(free_bytes=5 * GIB, file_system="ext4"))
    assert (found.where, found.seen) == ("/tmp (temporary)", "5 GiB of 400 GiB ext4")


def test_disk_nearly_full_speaks_of_a_tiny_tmpfs() -> None:
    (found,) = disk_nearly_full.judge(_machine(total_bytes=64 * MIB, free_bytes=64 * MIB, file_system="tmpfs"))
    assert found.wanted == "256 MiB or more"


def test_disk_nearly_full_speaks_when_no_more_files_fit() -> None:
    (found,) = disk_nearly_full.judge(_machine(inodes_free=3))
    assert found.what == "files that can be added"


def test_disk_nearly_full_is_told_once_a_file_system() -> None:
    low: dict[str, Any] = {
        "writable": True,
        "total_bytes": 400 * GIB,
        "free_bytes": 0,
        "mount_point": "/",
        "device": "/dev/sda1",
    }
    folders = (Folder(role="working", path="/job", **low), Folder(role="temporary", path="/tmp", **low))
    (found,) = disk_nearly_full.judge(Snapshot(disks=Disks(folders=folders)))
    assert found.where == "/job (working)"


@pytest.mark.parametrize(
    "fields",
    [
        {"total_bytes": 100_000 * GIB, "free_bytes": 900 * GIB},  # Less than 5 % of a large one.
        {"total_bytes": 8 * GIB, "free_bytes": 6 * GIB},  # Less than 10 GiB of a small one.
        {"free_bytes": 0, "writable": False},  # squashfs
        {"free_bytes": 0, "writable": None},
        {"total_bytes": None, "free_bytes": None},
        {"total_bytes": 0, "free_bytes": 0},
        {"inodes_free": None},
    ],
)
def test_disk_nearly_full_is_quiet_where_there_is_room_or_nothing_to_write(fields: dict[str, Any]) -> None:
    assert list(disk_nearly_full.judge(_machine(**fields))) == []


def test_disk_nearly_full_is_quiet_about_a_folder_that_gave_no_answer() -> None:
    dead = Folder(role="checkpoint", path="/mnt/dead", file_system="nfs4", error="no answer in 2 s")
    assert list(disk_nearly_full.judge(Snapshot(disks=Disks(folders=(dead,))))) == []
