"""Every rule, in report order."""

from typing import Any

from gpudoctor.findings import Rule
from gpudoctor.rules import (
    buckets,
    clock,
    communication,
    container,
    cpu,
    cuda_start,
    disks,
    driver,
    environment,
    error_text,
    exposure,
    fabric,
    gpu,
    host,
    host_time,
    kernel_log,
    kernels,
    libraries,
    limits,
    loader,
    memory,
    nccl,
    network,
    packages,
    precision,
    ranks,
    run,
    sharing,
    shm,
    topology,
    torch,
    torch_runtime,
)
from gpudoctor.run import Run
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
    *error_text.RULES,
)
"""Judge a Snapshot."""

RUN_RULES: tuple[Rule[Run], ...] = (
    *run.RULES,
    *loader.RULES,
    *communication.RULES,
    *ranks.RULES,
    *buckets.RULES,
    *memory.RULES,
    *sharing.RULES,
    *host_time.RULES,
    *kernels.RULES,
)
"""Judge a Run."""

ALL_RULES: tuple[Rule[Any], ...] = (
    *(rule for rule in MACHINE_RULES if rule.code not in {judged.code for judged in RUN_RULES}),
    *RUN_RULES,
)
"""What `explain` and `rules` tell of, and policies name: each code once, as a profile judges it where both do."""

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
    "ERR": "error texts",
    "RUN": "the run",
    "DAT": "the loader",
    "COM": "communication between ranks",
    "MEM": "GPU memory",
    "CPU": "the host's part of a step",
    "KRN": "kernels",
}
"""First letters of a code → what it is about, in report order."""
