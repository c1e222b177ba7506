"""The folders a job writes to, and the file systems below them."""

from gpudoctor.facts.base import Fact, Subject


class Folder(Fact, frozen=True, kw_only=True):
    """One folder of interest."""

    role: str
    """`working`, `temporary` or `checkpoint`."""
    path: str
    file_system: str | None = None
    """`ext4`, `overlay`, `nfs4`, `tmpfs`, …"""
    mount_point: str | None = None
    device: str | None = None
    total_bytes: int | None = None
    """None where the file system does not say (object stores mounted as folders)."""
    free_bytes: int | None = None
    """For this user."""
    inodes_free: int | None = None
    """For this user; None where their number has no limit."""
    writable: bool | None = None
    error: str | None = None
    """Why it could not be read, such as `no answer in 2 s`."""


class Disks(Subject, frozen=True, kw_only=True):
    """In the order working, temporary, checkpoint."""

    folders: tuple[Folder, ...] = ()
