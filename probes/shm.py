"""Read /dev/shm."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

from gpudoctor.facts.shm import Shm, StaleFile
from gpudoctor.probes.mounts import Mount, mount_of, mounts
from gpudoctor.probes.system import NotRead, System

FOLDER = "/dev/shm"
# What torch, NCCL, and Python's multiprocessing (semaphores, shared_memory) call their files.
FILE = re.compile(r"torch_(?P<pid>\d+)_\d+(_\d+)?|nccl-\w+|sem\.mp-\w+|psm_\w+", re.ASCII)
MAPPED = re.compile(rb"/(torch_\d+_\d+(?:_\d+)?|nccl-\w+|sem\.mp-\w+|psm_\w+)")
# Their creator may hand over the name, close the file and go before the next process opens it.
HANDED_OVER_BY_NAME = ("psm_", "sem.mp-")
HAND_OVER_S = 60.0
# Inode numbers of the first namespaces, fixed by the kernel (include/linux/proc_ns.h).
FIRST_PIDS, FIRST_IPC = "pid:[4026531836]", "ipc:[4026531839]"


def read(system: System) -> Shm:
    """Size, use, and files left behind; `exists=False` where there is none (macOS)."""
    folder = system.path(FOLDER)
    if not folder.is_dir():
        return Shm(exists=False)
    mount = mount_of(mounts(system), FOLDER)
    unread: dict[str, str] = {}
    total, free, inodes_free = _space(system, folder, mount)
    stale: tuple[StaleFile, ...] | None = None
    unseen = _shared_unseen(system)
    try:
        stale = _stale(system, folder)
    except NotRead as error:
        unread["stale"] = str(error)
    return Shm(
        exists=True,
        writable=_writable(folder) if system.live else None,
        file_system=mount.file_system if mount else None,
        total_bytes=total,
        free_bytes=free,
        inodes_free=inodes_free,
        stale=stale,
        stale_bytes=None if stale is None else sum(file.size_bytes or 0 for file in stale),
        shared_unseen=unseen,
        unread=unread,
    )


def _space(system: System, folder: Path, mount: Mount | None) -> tuple[int | None, int | None, int | None]:
    """Bytes in all, bytes free, inodes free; of a recorded machine only what its mount options tell."""
    if not system.live:
        sizes = (option[len("size=") : -1] for option in (mount.options if mount else ()) if option.startswith("size="))
        return next((int(size) * 1024 for size in sizes if size.isdecimal()), None), None, None
    stat = os.statvfs(folder)
    inodes_free = stat.f_favail if stat.f_files else None
    if stat.f_blocks == 0:
        return None, None, inodes_free
    return stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail, inodes_free


def _writable(folder: Path) -> bool:
    """By a file that never has a name, so that nothing can be left behind."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return os.access(folder, os.W_OK)
        return error.errno in (errno.ENOSPC, errno.EDQUOT)  # Full is another matter.
    return True


def _shared_unseen(system: System) -> bool | None:
    try:
        return str(system.path("/proc/self/ns/pid").readlink()) != FIRST_PIDS
    except OSError:
        return None


def _stale(system: System, folder: Path) -> tuple[StaleFile, ...]:
    """Files that no process has mapped or open and whose creator, where the name tells it, is dead.

    Raises NotRead where processes that may use them cannot be seen.
    """
    found = {path.name: path for path in sorted(folder.iterdir()) if FILE.fullmatch(path.name)}
    if not found:
        return ()  # The costly look into every process is for machines that have such files.
    if _shared_unseen(system) and _namespace(system, "ipc") == FIRST_IPC:
        raise NotRead("the host's /dev/shm, whose processes are not seen from this container")
    used, unseen_owners = _used(system)
    stale, hidden = [], 0
    for name, path in found.items():
        try:
            stat = path.lstat()
        except OSError:
            continue  # Its owner has just removed it.
        age_s = max(0.0, time.time() - max(stat.st_mtime, stat.st_ctime))
        match = FILE.fullmatch(name)
        pid = match.group("pid") if match else None
        if name in used or (pid and system.path(f"/proc/{pid}").exists()):
            continue
        if name.startswith(HANDED_OVER_BY_NAME) and age_s < HAND_OVER_S:
            continue
        # These files are for their owner alone (mode 0600), so only its processes matter. /proc may be mounted so
        # that it does not even list those of others (hidepid).
        if stat.st_uid in unseen_owners or os.geteuid() not in (0, stat.st_uid):
            hidden += 1
            continue
        stale.append(StaleFile(name=name, size_bytes=stat.st_blocks * 512, age_s=round(age_s, 1)))
    if hidden and not stale:
        raise NotRead("needs root to see who uses the files of other users")
    return tuple(stale)


def _namespace(system: System, kind: str) -> str | None:
    try:
        return str(system.path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return None


def _used(system: System) -> tuple[set[str], set[int]]:
    """Names in use by a process we may look into, and the users of those we may not."""
    used: set[str] = set()
    unseen: set[int] = set()
    for process in system.path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            owner = process.stat().st_uid
        except OSError:
            continue  # Gone.
        try:
            used.update(os.fsdecode(name) for name in MAPPED.findall((process / "maps").read_bytes()))
            used.update(_open_files(process / "fd"))
        except PermissionError:
            # The machine's own init may be closed even to root, and is no training process; a container's may be one.
            if process.name != "1" or _shared_unseen(system):
                unseen.add(owner)
        except OSError:
            continue  # Gone.
    return used, unseen


def _open_files(folder: Path) -> set[str]:
    names = set()
    for descriptor in folder.iterdir():
        try:
            names.add(Path(descriptor.readlink()).name.removesuffix(" (deleted)"))
        except FileNotFoundError:
            continue
    return names
