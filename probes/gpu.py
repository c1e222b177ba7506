"""Read the GPU boards of this host through NVML."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from gpudoctor.facts.gpu import Gpu, Gpus, MigInstance
from gpudoctor.probes import gpu_health, gpu_processes
from gpudoctor.probes.cpu import cpu_list
from gpudoctor.probes.nvml import NOT_OURS, BoardLost, Nvml, ResetNeeded, named, started, text
from gpudoctor.probes.system import System

THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}  # nvml.h, nvmlClocksEventReasons
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
VIRTUALIZATION = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
GRAPHICS_CLOCK, SM_CLOCK = 0, 1
WATCHED_S = 0.05
"""The least time over which a rate of replays means something."""
NOBODYS_BYTES = 300 * 2**20
"""Memory in use beyond this and no process to show for it: looked at again, since processes come and go."""
LOOKS, LOOK_AGAIN_S = 4, 0.15
PARTS = {
    "nvmlDeviceGetComputeRunningProcesses": "processes",
    "nvmlDeviceGetComputeRunningProcesses_v2": "processes",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetMigDeviceHandleByIndex": "mig_instances",
    "nvmlDeviceGetMaxMigDeviceCount": "mig_instances",
}
"""Call → the part of the subject under which its failure is told; others go by the call's own name."""


def read(system: System) -> Gpus:
    """One Gpu a board, in NVML order (that of the PCI bus); no board where the driver lists none.

    Raises NotRead without a driver, or with one that does not start. A board that is lost is listed as lost.
    """
    with started(system) as nvml:
        return boards(nvml, system)


def boards(nvml: Nvml, system: System, wait: Callable[[float], None] = time.sleep) -> Gpus:
    """As `read`, of a started NVML. `wait` is called only where memory is held and no process is seen."""
    handles = dict(enumerate(nvml.handles()))
    hidden = [index for index, handle in handles.items() if _hidden(nvml, handle)]
    handles = {index: handle for index, handle in handles.items() if index not in hidden}
    began = time.monotonic()
    before = {index: _replays(nvml, handle) for index, handle in handles.items()}
    found = {index: _board(nvml, system, index, handle) for index, handle in handles.items()}
    for _ in range(LOOKS):
        doubtful = [index for index, gpu in found.items() if _nobodys(gpu)]
        if not doubtful:
            break
        wait(LOOK_AGAIN_S)
        for index in doubtful:
            found[index] = _again(found[index], partial(_memory, nvml, handles[index], system))
    for index, handle in handles.items():
        found[index] = _again(found[index], partial(_lasting, nvml, handle, found[index]))
        after, at_first, watched_s = _replays(nvml, handle), before[index], time.monotonic() - began
        if after is not None and at_first is not None and watched_s >= WATCHED_S:
            found[index] = _with(found[index], pcie_replays_per_s=(after - at_first) / watched_s)
    unread = {PARTS.get(name, name): reason for name, reason in nvml.failed.items()}
    if hidden:
        unread["boards"] = f"{len(hidden)} more, which this process may not use"
    return Gpus(boards=tuple(found.values()), unread=unread)


def _hidden(nvml: Nvml, handle: Any) -> bool:
    return isinstance(handle, Exception) and nvml.error_name(handle) in NOT_OURS


def _with(gpu: Gpu, **fields: Any) -> Gpu:
    return msgspec.structs.replace(gpu, **fields)


def _again(gpu: Gpu, look: Callable[[], dict[str, Any]]) -> Gpu:
    if gpu.lost or gpu.error is not None:
        return gpu
    try:
        return _with(gpu, **look())
    except BoardLost as error:
        return _with(gpu, **_gone(error))


def _gone(error: BoardLost) -> dict[str, Any]:
    if isinstance(error, ResetNeeded):
        return {"recovery_action": "gpu_reset", "error": str(error)}
    return {"lost": True, "error": str(error)}


def _nobodys(gpu: Gpu) -> bool:
    known = gpu.memory_reserved_bytes is not None and gpu.processes == () and not gpu.mig_mode
    return known and (gpu.memory_used_bytes or 0) > NOBODYS_BYTES


def _replays(nvml: Nvml, handle: Any) -> int | None:
    try:
        return None if isinstance(handle, Exception) else nvml.whole("nvmlDeviceGetPcieReplayCounter", handle)
    except BoardLost:
        return None


def _board(nvml: Nvml, system: System, index: int, handle: Any) -> Gpu:
    if isinstance(handle, Exception):
        # A board of which not even a handle is given: without power, fallen off the bus, or waiting for a reset.
        if nvml.error_name(handle) == "NVML_ERROR_RESET_REQUIRED":
            return Gpu(index=index, recovery_action="gpu_reset", error=str(handle))
        return Gpu(index=index, lost=True, error=str(handle))
    told: dict[str, Any] = {"index": index}
    try:
        for part in (_names, _link, _modes, _memory, _load, _power_and_clocks, gpu_health.read, _place):
            told.update(part(nvml, handle, system))
    except BoardLost as error:
        told.update(_gone(error))
    return Gpu(**told)


def _names(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
    return {
        "name": text(nvml.ask("nvmlDeviceGetName", handle)),
        "uuid": text(nvml.ask("nvmlDeviceGetUUID", handle)),
        "serial": text(nvml.ask("nvmlDeviceGetSerial", handle)),
        "vbios": text(nvml.ask("nvmlDeviceGetVbiosVersion", handle)),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "pci_bus_id": nvml.bus_id(handle),
    }


def _link(nvml: Nvml, handle: Any, system: System) -> dict[str, Any]:
    return {
        "pcie_generation": nvml.whole("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": nvml.whole("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": nvml.whole("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": nvml.whole("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "pcie_slot_width": _slot_width(system, nvml.slot(handle)),
        "pcie_replays": nvml.whole("nvmlDeviceGetPcieReplayCounter", handle),
    }


def _slot_width(system: System, slot: str | None) -> int | None:
    """Lanes that the port above the board has."""
    try:
        folder = system.path(f"/sys/bus/pci/devices/{slot}").resolve()
        return int((folder.parent / "max_link_width").read_text(encoding="ascii")) or None
    except (OSError, ValueError):
        return None  # a virtual machine shows the board without a port above it


def _memory(nvml: Nvml, handle: Any, system: System) -> dict[str, Any]:
    """Processes first, then memory: what a process gives back in between is then not taken for nobody's."""
    processes = gpu_processes.read(nvml, handle, system)
    version = getattr(nvml.pynvml, "nvmlMemory_v2", None)
    second = nvml.ask("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
    memory = second if second is not None else nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    return {
        "processes": processes,
        "memory_total_bytes": int(memory.total) if memory is not None else None,
        "memory_used_bytes": int(memory.used) if memory is not None else None,
        "memory_reserved_bytes": int(second.reserved) if second is not None else None,
    }


def _load(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    return {
        "utilization_ratio": rates.gpu / 100 if rates is not None else None,
        "performance_state": nvml.whole("nvmlDeviceGetPerformanceState", handle),
        "temperature_c": nvml.whole("nvmlDeviceGetTemperature", handle, 0),
    }


def _power_and_clocks(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    power, limit, default = (
        nvml.ask(name, handle)
        for name in (
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetEnforcedPowerLimit",
            "nvmlDeviceGetPowerManagementDefaultLimit",
        )
    )
    return {
        "power_w": power / 1000 if power is not None else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "power_limit_default_w": default / 1000 if default is not None else None,
        "clock_sm_mhz": nvml.whole("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
        "clock_sm_max_mhz": nvml.whole("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
        "clock_application_mhz": nvml.whole("nvmlDeviceGetApplicationsClock", handle, GRAPHICS_CLOCK),
        "clock_application_default_mhz": nvml.whole("nvmlDeviceGetDefaultApplicationsClock", handle, GRAPHICS_CLOCK),
        "throttle_reasons": _reasons(nvml, handle),
    }


def _reasons(nvml: Nvml, handle: Any) -> tuple[str, ...] | None:
    calls = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    reasons = nvml.first(calls, handle)
    return None if reasons is None else tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit)


def _lasting(nvml: Nvml, handle: Any, gpu: Gpu) -> dict[str, Any]:
    """WHY twice: hw_slowdown shows for a moment whenever the performance state changes (nvml.h)."""
    if "hw_slowdown" not in (gpu.throttle_reasons or ()):
        return {}
    now = _reasons(nvml, handle) or ()
    return {"throttle_reasons": tuple(name for name in gpu.throttle_reasons or () if name in now)}


def _modes(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    mig = nvml.flag("nvmlDeviceGetMigMode", handle)
    return {
        "persistence_mode": nvml.flag("nvmlDeviceGetPersistenceMode", handle),
        "compute_mode": named(COMPUTE_MODES, nvml.whole("nvmlDeviceGetComputeMode", handle)),
        "virtualization": named(VIRTUALIZATION, nvml.whole("nvmlDeviceGetVirtualizationMode", handle)),
        "mig_mode": mig,
        "mig_instances": _mig_instances(nvml, handle) if mig else (),
    }


def _mig_instances(nvml: Nvml, handle: Any) -> tuple[MigInstance, ...]:
    count = nvml.whole("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)]
    return tuple(
        MigInstance(
            uuid=text(nvml.ask("nvmlDeviceGetUUID", instance)),
            name=text(nvml.ask("nvmlDeviceGetName", instance)),
            memory_total_bytes=_memory_total(nvml, instance),
        )
        for instance in found
        if instance is not None
    )


def _memory_total(nvml: Nvml, handle: Any) -> int | None:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    return int(memory.total) if memory is not None else None


def _place(nvml: Nvml, handle: Any, system: System) -> dict[str, Any]:
    """Which CPUs and which memory node are near: sysfs first, which asks no driver."""
    folder = f"/sys/bus/pci/devices/{nvml.slot(handle)}"
    near = cpu_list(system.text_or_none(f"{folder}/local_cpulist"))
    node = system.text_or_none(f"{folder}/numa_node") or ""
    own = nvml.whole("nvmlDeviceGetNumaNodeId", handle)
    return {
        "numa_node": int(node) if node.isdecimal() else None,  # -1: none
        "memory_node": own if own is not None and own >= 0 else None,
        "cpu_affinity": near or _affinity(nvml, handle),
    }


def _affinity(nvml: Nvml, handle: Any) -> tuple[int, ...] | None:
    words = ((os.cpu_count() or 1) + 63) // 64
    mask = nvml.ask("nvmlDeviceGetCpuAffinity", handle, words)
    if mask is None:
        return None
    return tuple(word * 64 + bit for word in range(words) for bit in range(64) if mask[word] >> bit & 1)
