"""Read the folders a job writes to. Each is asked in a thread of its own: one dead mount costs its own line alone."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.facts.disks import Disks, Folder
from gpudoctor.probes.mounts import mount_of, mounts
from gpudoctor.probes.system import NotRead, System

DEADLINE_S = 2.0


def read(
    system: System, measure: Callable[[Path], dict[str, Any]] | None = None, deadline_s: float = DEADLINE_S
) -> Disks:
    """All folders at once; one that gives no answer by the deadline has that as its `error`.

    Raises NotRead for a recorded machine: the room on its disks is not in its files.
    """
    if measure is None:
        if not system.live:
            raise NotRead("a recorded machine")
        measure = space
    table = mounts(system)
    folders = list(_folders(system))
    answers: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
    for folder in folders:
        # WHY daemon: a thread that hangs in the kernel can be neither ended nor joined.
        threading.Thread(target=_ask, args=(measure, folder, answers), daemon=True).start()
    answered = dict(_until(answers, len(folders), time.monotonic() + deadline_s))
    found = []
    for folder in folders:
        answer = answered.get(folder.role, {"error": f"no answer in {deadline_s:g} s"})
        # Links resolved, where the thread came that far: the mount is that of the file itself.
        mount = mount_of(table, answer.pop("resolved", folder.path))
        if mount is not None:
            answer |= {"file_system": mount.file_system, "mount_point": mount.point, "device": mount.device}
        found.append(msgspec.structs.replace(folder, **answer))
    return Disks(folders=tuple(found))


def _folders(system: System) -> Iterator[Folder]:
    """Their names alone, which needs no file system."""
    working = _working(system)
    yield Folder(role="working", path=str(working))
    yield Folder(role="temporary", path=str(working / (system.environ.get("TMPDIR") or "/tmp")))
    if system.checkpoint_dir is not None:
        yield Folder(role="checkpoint", path=str(working / system.checkpoint_dir))


def _working(system: System) -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # It has been removed; the variable still names it.
        return Path(system.environ.get("PWD") or "/")


def _ask(
    measure: Callable[[Path], dict[str, Any]], folder: Folder, answers: queue.SimpleQueue[tuple[str, dict[str, Any]]]
) -> None:
    try:
        answers.put((folder.role, measure(Path(folder.path))))
    except Exception as error:
        # Whatever went wrong is this folder's answer and must not leave a traceback on standard error.
        answers.put((folder.role, {"error": getattr(error, "strerror", None) or str(error)}))


def _until(
    answers: queue.SimpleQueue[tuple[str, dict[str, Any]]], count: int, ends_at: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        for _ in range(count):
            yield answers.get(timeout=max(0.0, ends_at - time.monotonic()))
    except queue.Empty:
        return


def space(path: Path) -> dict[str, Any]:
    """Room in a folder, or in the nearest above it where it does not exist yet. May hang on a dead mount."""
    folder = path.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    stat = os.statvfs(folder)
    known = stat.f_blocks > 0
    return {
        "resolved": str(folder),
        "total_bytes": stat.f_frsize * stat.f_blocks if known else None,
        "free_bytes": stat.f_frsize * stat.f_bavail if known else None,
        "inodes_free": stat.f_favail if stat.f_files > 0 else None,
        "writable": os.access(folder, os.W_OK | os.X_OK),
    }
