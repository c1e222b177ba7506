"""Every rule, in report order."""

from gpudoctor.findings import Rule
from gpudoctor.rules import (
    clock,
    container,
    cpu,
    disks,
    driver,
    environment,
    exposure,
    gpu,
    host,
    kernel_log,
    libraries,
    limits,
    nccl,
    network,
    packages,
    precision,
    shm,
    topology,
    torch,
)
from gpudoctor.snapshot import Snapshot

MACHINE_RULES: tuple[Rule[Snapshot], ...] = (
    *driver.RULES,
    *gpu.RULES,
    *kernel_log.RULES,
    *topology.RULES,
    *torch.RULES,
    *packages.RULES,
    *libraries.RULES,
    *precision.RULES,
    *shm.RULES,
    *limits.RULES,
    *cpu.RULES,
    *disks.RULES,
    *clock.RULES,
    *host.RULES,
    *container.RULES,
    *environment.RULES,
    *nccl.RULES,
    *network.RULES,
    *exposure.RULES,
)
"""Judge a Snapshot."""
