"""The kernel's table of mounts."""

from collections.abc import Callable

from gpudoctor.probes.mounts import mount_of, mounts
from gpudoctor.probes.system import System

TABLE = r"""
22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 28 0:44 /volumes/a /data rw shared:20 master:3 - nfs4 10.0.0.9:/export rw,vers=4.2
41 40 0:45 / /data/my\040sets rw - fuse.gcsfuse bucket rw,user_id=0
42 28 0:46 / /dev/shm rw - tmpfs tmpfs rw,size=1024k
43 42 0:47 / /dev/shm rw - tmpfs shm rw,size=65536k
44 28 0:48 / /empty rw - tmpfs
"""

Record = Callable[[dict[str, str]], System]


def test_the_longest_mount_point_above_a_path_wins(record: Record) -> None:
    table = mounts(record({"/proc/self/mountinfo": TABLE.strip()}))
    for path, file_system in (
        ("/data/my sets/a", "fuse.gcsfuse"),
        ("/data/my set", "nfs4"),
        ("/database", "ext4"),
        ("/", "ext4"),
    ):
        found = mount_of(table, path)
        assert found is not None
        assert found.file_system == file_system


def test_of_two_mounts_at_one_point_the_last_is_seen(record: Record) -> None:
    found = mount_of(mounts(record({"/proc/self/mountinfo": TABLE.strip()})), "/dev/shm")
    assert found is not None
    assert found.device == "shm"


def test_a_line_that_is_cut_short_is_passed_over(record: Record) -> None:
    assert mounts(record({"/proc/self/mountinfo": "44 28 0:48 / /empty rw - tmpfs"})) == ()


def test_there_are_no_mounts_where_there_is_no_table(record: Record) -> None:
    assert mount_of(mounts(record({})), "/tmp") is None
