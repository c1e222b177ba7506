"""Read the processes that hold memory on a GPU board."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.gpu import GpuProcess
from gpudoctor.probes.nvml import Nvml
from gpudoctor.probes.system import System

COMPUTE = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2")
MPS = ("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2")


def read(nvml: Nvml, handle: Any, system: System) -> tuple[GpuProcess, ...] | None:
    """Each process once, by its number; None where the driver does not list them."""
    compute, graphics = nvml.first(COMPUTE, handle), nvml.first(GRAPHICS, handle)
    if compute is None and graphics is None:
        return None
    kinds: dict[int, str] = {}
    held: dict[int, int | None] = {}
    for kind, processes in (("compute", compute), ("compute", nvml.first(MPS, handle)), ("graphics", graphics)):
        for process in processes or ():
            pid, memory = int(process.pid), process.usedGpuMemory
            kinds[pid] = kind
            held[pid] = max(held.get(pid) or 0, int(memory)) if memory is not None else held.get(pid)
    above = tuple(_above(system, os.getpid())) if kinds else ()
    return tuple(
        GpuProcess(
            pid=pid,
            kind=kind,
            memory_bytes=held[pid],
            name=system.text_or_none(f"/proc/{pid}/comm"),
            ours=_ours(system, pid, above),
        )
        for pid, kind in sorted(kinds.items())
    )


def _ours(system: System, pid: int, above: tuple[int, ...]) -> bool:
    """Started by the check (the smoke test), or what the check was started by (a job that asks for it).

    `above` is this process and those above it. The check itself is the second: each probe runs in a child of it.
    """
    return pid in above or (len(above) > 1 and above[1] in _above(system, pid))


def _above(system: System, pid: int) -> Iterator[int]:
    """The process, its parent and so on."""
    while pid > 0:
        yield pid
        stat = system.text_or_none(f"/proc/{pid}/stat") or ""
        fields = stat.rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
