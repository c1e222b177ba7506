"""Every rule, in report order."""

from gpudoctor.findings import Rule
from gpudoctor.rules import (
    clock,
    container,
    cpu,
    cuda_start,
    disks,
    driver,
    environment,
    exposure,
    fabric,
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
    torch_runtime,
)
from gpudoctor.snapshot import Snapshot

MACHINE_RULES: tuple[Rule[Snapshot], ...] = (
    *driver.RULES,
    *cuda_start.RULES,
    *fabric.RULES,
    *gpu.RULES,
    *kernel_log.RULES,
    *topology.RULES,
    *torch.RULES,
    *torch_runtime.RULES,
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

AREAS: dict[str, str] = {
    "DRV": "driver and CUDA",
    "GPU": "board health",
    "PCI": "PCI Express links",
    "NVL": "NVLink and peer access",
    "TOR": "the torch installation",
    "LIB": "shared libraries",
    "PRE": "precision",
    "SHM": "shared memory",
    "SYS": "the host",
    "CTR": "containers",
    "ENV": "environment variables",
    "NCC": "NCCL",
    "NET": "names and ports",
    "SEC": "exposure",
}
"""First letters of a code → what it is about, in report order."""
