"""ulimit, /proc/self/limits and df."""

import pytest

from gpudoctor.facts.limits import Limits
from gpudoctor.facts.shm import Shm
from gpudoctor.readers.limits import read

GIB = 2**30

BASH = """\
stack size                  (kbytes, -s) 8192
open files                          (-n) 1024
max locked memory           (kbytes, -l) 65536
max user processes                  (-u) unlimited
"""
ZSH = """\
-s: stack size (kbytes)             8192
-n: file descriptors                1024
-l: locked-in-memory size (kbytes)  65536
"""
KERNEL = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1024                 1048576              files
Max locked memory         67108864             67108864             bytes
"""


def _limits(text: str) -> Limits | None:
    found = read(text)
    return found.limits if found else None


@pytest.mark.parametrize("text", [BASH, ZSH, KERNEL], ids=["bash", "zsh", "kernel"])
def test_limits_are_read_in_bytes_and_counts(text: str) -> None:
    limits = _limits(text)
    assert limits is not None
    assert (limits.open_files, limits.stack_bytes) == (1024, 8 * 2**20)
    assert (limits.locked_memory_bytes, limits.locked_memory_unlimited) == (64 * 2**20, False)
    assert limits.processes is None


@pytest.mark.parametrize(
    "text", ["$ ulimit -l\nunlimited\n", "docker run --ulimit memlock=-1 image", "Ulimit=memlock=-1:-1"]
)
def test_unlimited_is_an_answer(text: str) -> None:
    assert _limits(text) == Limits(locked_memory_unlimited=True)


@pytest.mark.parametrize(
    ("line", "total", "free"),
    [
        ("shm              64M   60M  4.1M  94% /dev/shm", 64 * 2**20, int(4.1 * 2**20)),
        ("tmpfs           126G     0  126G   0% /dev/shm", 126 * GIB, 126 * GIB),
        ("tmpfs          1,0G  512M  512M  50% /dev/shm", GIB, GIB // 2),
        ("Filesystem 1K-blocks Used Available Use% Mounted on\nshm 65536 0 65536 0% /dev/shm", 64 * 2**20, 64 * 2**20),
        ("Filesystem 1M-blocks Used Available Use% Mounted on\nshm 64 0 64 0% /dev/shm", 64 * 2**20, 64 * 2**20),
    ],
)
def test_df_is_read_in_its_units(line: str, total: int, free: int) -> None:
    found = read(line)
    assert found is not None
    assert found.shm == Shm(exists=True, file_system="tmpfs", total_bytes=total, free_bytes=free)


@pytest.mark.parametrize("text", ["too many open files", "df -h /dev/shm is small", "open files are 5"])
def test_prose_is_none(text: str) -> None:
    assert read(text) is None
