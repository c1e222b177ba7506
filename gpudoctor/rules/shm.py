"""Shared memory."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot

MIB = 2**20


@rule(
    "SHM001",
    "shm-too-small",
    Severity.ERROR,
    why="loader workers hand over batches through /dev/shm and die with a bus error when it is full",
    fix=Fix("start the container with a larger one", "docker run --shm-size=16g …", safety="restarts"),
    confirm="df -h /dev/shm",
    source="PyTorch README, section Docker image",
)
def shm_too_small(machine: Snapshot) -> Iterator[Evidence]:
    """/dev/shm is at most 64 MiB, the default of Docker.

    Silent where there is no /dev/shm to read.
    """
    if machine.shm is None or machine.shm.total_bytes is None:
        return
    if machine.shm.total_bytes <= 64 * MIB:
        yield Evidence(
            where="/dev/shm", what="size", seen=f"{machine.shm.total_bytes // MIB} MiB", wanted="1 GiB a GPU or more"
        )


RULES: tuple[Rule[Snapshot], ...] = (shm_too_small,)
