"""Rules on the folders a job writes to."""

from collections.abc import Iterator

from gpudoctor.facts.disks import Folder
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.sizes import GIB, MIB, size
from gpudoctor.snapshot import Snapshot

# Both: 5 % of a large disk is plenty, and 10 GiB may be all of a small one.
LOW_SHARE, LOW_BYTES = 0.05, 10 * GIB
# Too little for the caches of torch.compile and Triton or any checkpoint, whatever share it is.
LEAST_BYTES = 256 * MIB
FEW_INODES = 1000


@rule(
    "SYS009",
    "disk-nearly-full",
    Severity.WARNING,
    why="the next checkpoint or compiler cache fails with no space left on device, often hours into the job",
    fix=Fix("make room, or point TMPDIR and the checkpoints at a larger file system"),
    confirm="df -h . ${TMPDIR:-/tmp}; df -i . ${TMPDIR:-/tmp}",
    source="statvfs(3); the bounds are ours",
)
def disk_nearly_full(machine: Snapshot) -> Iterator[Evidence]:
    """The working, temporary or checkpoint folder has less than 5 % and less than 10 GiB free, or less than 256 MiB, or
    fewer than 1000 files left.

    Silent where the job may not write (squashfs, images mounted read-only), and where the file system does not tell.
    """
    told: set[tuple[str | None, str | None]] = set()
    for folder in machine.disks.folders if machine.disks else ():
        place = (folder.device, folder.mount_point)
        if not folder.writable or (place != (None, None) and place in told):
            continue
        for evidence in _short(folder):
            told.add(place)
            yield evidence


def _short(folder: Folder) -> Iterator[Evidence]:
    where = f"{folder.path} ({folder.role})"
    total, free = folder.total_bytes, folder.free_bytes
    if total and free is not None and (free < LEAST_BYTES or (free < LOW_BYTES and free < LOW_SHARE * total)):
        kind = f" {folder.file_system}" if folder.file_system else ""
        seen = f"{size(free)} of {size(total)}{kind}"
        wanted = "256 MiB or more" if free < LEAST_BYTES else "5 % or 10 GiB"
        yield Evidence(where=where, what="free", seen=seen, wanted=wanted)
    elif folder.inodes_free is not None and folder.inodes_free < FEW_INODES:
        yield Evidence(where=where, what="files that can be added", seen=f"{folder.inodes_free}", wanted="1000 or more")


RULES: tuple[Rule[Snapshot], ...] = (disk_nearly_full,)
