"""Shared memory, through which loader workers hand over batches and NCCL ranks of one host talk."""

from gpudoctor.facts.base import Fact, Subject


class StaleFile(Fact, frozen=True, kw_only=True):
    """A file in /dev/shm whose owner is gone."""

    name: str
    size_bytes: int | None = None
    age_s: float | None = None


class Shm(Subject, frozen=True, kw_only=True):
    """/dev/shm."""

    exists: bool | None = None
    writable: bool | None = None
    file_system: str | None = None
    """`tmpfs` where it is a shared memory at all."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    inodes_free: int | None = None
    stale: tuple[StaleFile, ...] | None = None
    stale_bytes: int | None = None
