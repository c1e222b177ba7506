"""Shared memory, through which loader workers hand over batches and NCCL ranks of one host talk."""

from gpudoctor.facts.base import Fact, Subject


class StaleFile(Fact, frozen=True, kw_only=True):
    """A file in /dev/shm whose owner is gone."""

    name: str
    size_bytes: int | None = None
    """What it takes, not its nominal length."""
    age_s: float | None = None


class Shm(Subject, frozen=True, kw_only=True):
    """/dev/shm."""

    exists: bool | None = None
    writable: bool | None = None
    file_system: str | None = None
    """`tmpfs` where it is a shared memory at all."""
    total_bytes: int | None = None
    """None where the file system has no limit (tmpfs with size=0)."""
    free_bytes: int | None = None
    inodes_free: int | None = None
    """None where their number has no limit."""
    stale: tuple[StaleFile, ...] | None = None
    """Files of torch, NCCL and Python's multiprocessing that no process uses; None where that cannot be told."""
    stale_bytes: int | None = None
    """Of those files together."""
    shared_unseen: bool | None = None
    """This is a process namespace of its own, so a process outside it (another container) could use the same files."""
    refused_bytes: int | None = None
    """A request for this much that failed with "No space left on device" (from pasted text)."""
