"""Read the GPU boards of this host through NVML."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus, MigInstance
from gpudoctor.probes.nvml import BoardLost, Nvml, started
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
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)  # nvml.h, nvmlDeviceGpuRecoveryAction_t
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_HEALTH = (None, "healthy", "unhealthy", "limited_capacity")
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
SM_CLOCK = 1


def read(system: System) -> Gpus:
    """One Gpu a board, in NVML order (that of the PCI bus); no board where the driver lists none.

    Raises NotRead without a driver, or with one that does not start. A board that is lost is listed as lost.
    """
    with started(system) as nvml:
        return boards(nvml, system)


def boards(nvml: Nvml, system: System) -> Gpus:
    """As `read`, of a started NVML."""
    handles = nvml.handles()
    before = [_replays(nvml, handle) for handle in handles]
    began = time.monotonic()
    found = [_board(nvml, system, index, handle) for index, handle in enumerate(handles)]
    took_s = time.monotonic() - began
    for index, handle in enumerate(handles):
        after, at_first = _replays(nvml, handle), before[index]
        if after is not None and at_first is not None and took_s > 0:
            found[index] = _changed(found[index], pcie_replays_per_s=(after - at_first) / took_s)
    unread = {"processes": "needs more rights"} if any("Processes" in name for name in nvml.refused) else {}
    return Gpus(boards=tuple(found), unread=unread)


def _changed(gpu: Gpu, **fields: Any) -> Gpu:
    import msgspec

    return msgspec.structs.replace(gpu, **fields)


def _replays(nvml: Nvml, handle: Any) -> int | None:
    try:
        return None if isinstance(handle, Exception) else nvml.whole("nvmlDeviceGetPcieReplayCounter", handle)
    except BoardLost:
        return None


def _board(nvml: Nvml, system: System, index: int, handle: Any) -> Gpu:
    if isinstance(handle, Exception):
        # A board of which not even a handle is given: powered down, fallen off the bus, or not allowed here.
        return Gpu(index=index, lost=nvml.error_name(handle) != "NVML_ERROR_NO_PERMISSION", error=str(handle))
    told: dict[str, Any] = {"index": index}
    try:
        for part in (_names, _link, _memory, _load, _power_and_clocks, _modes, _ecc, _fabric, _place):
            told.update(part(nvml, handle, system))
    except BoardLost as error:
        told.update(lost=True, error=str(error))
    return Gpu(**told)


def _names(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    return {
        "name": _text(nvml.ask("nvmlDeviceGetName", handle)),
        "uuid": _text(nvml.ask("nvmlDeviceGetUUID", handle)),
        "serial": _text(nvml.ask("nvmlDeviceGetSerial", handle)),
        "vbios": _text(nvml.ask("nvmlDeviceGetVbiosVersion", handle)),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "pci_bus_id": _text(pci.busId) if pci is not None else None,
    }


def _text(answer: Any) -> str | None:
    """Bytes or text, as the version of the binding gives it."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    return answer if isinstance(answer, str) else None


def _link(nvml: Nvml, handle: Any, system: System) -> dict[str, Any]:
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    return {
        "pcie_generation": nvml.whole("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": nvml.whole("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": nvml.whole("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": nvml.whole("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "pcie_slot_width": _slot_width(system, _text(pci.busId)) if pci is not None else None,
        "pcie_replays": nvml.whole("nvmlDeviceGetPcieReplayCounter", handle),
    }


def sysfs_name(bus_id: str) -> str:
    """`0000:0f:00.0`, as sysfs writes what NVML calls `00000000:0F:00.0`."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def _slot_width(system: System, bus_id: str | None) -> int | None:
    """Lanes that the port above the board has."""
    try:
        folder = system.path(f"/sys/bus/pci/devices/{sysfs_name(bus_id or '')}")
        return int((Path(os.path.realpath(folder)).parent / "max_link_width").read_text()) or None
    except (OSError, ValueError):
        return None  # a virtual machine shows the board without a port above it


def _memory(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    version = getattr(nvml.pynvml, "nvmlMemory_v2", None)
    second = nvml.ask("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
    memory = second if second is not None else nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is None:
        return {}
    return {
        "memory_total_bytes": int(memory.total),
        "memory_used_bytes": int(memory.used),
        "memory_reserved_bytes": int(second.reserved) if second is not None else None,
    }


def _load(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    compute = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    graphics = nvml.ask("nvmlDeviceGetGraphicsRunningProcesses", handle)
    told = [("compute", process) for process in compute or ()] + [("graphics", process) for process in graphics or ()]
    known = compute is not None or graphics is not None
    return {
        "utilization_ratio": rates.gpu / 100 if rates is not None else None,
        "processes": tuple(_process(kind, process) for kind, process in told) if known else None,
    }


def _process(kind: str, process: Any) -> GpuProcess:
    try:
        name: str | None = Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        name = None  # of another container, or gone
    held = process.usedGpuMemory
    return GpuProcess(pid=int(process.pid), kind=kind, memory_bytes=int(held) if held is not None else None, name=name)


def _power_and_clocks(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    reasons = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    limit, default = (
        nvml.ask(name, handle)
        for name in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
    )
    power = nvml.ask("nvmlDeviceGetPowerUsage", handle)
    return {
        "temperature_c": nvml.whole("nvmlDeviceGetTemperature", handle, 0),
        "power_w": power / 1000 if power is not None else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "power_limit_default_w": default / 1000 if default is not None else None,
        "clock_sm_mhz": nvml.whole("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
        "clock_sm_max_mhz": nvml.whole("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
        "clock_application_mhz": nvml.whole("nvmlDeviceGetApplicationsClock", handle, SM_CLOCK),
        "clock_application_default_mhz": nvml.whole("nvmlDeviceGetDefaultApplicationsClock", handle, SM_CLOCK),
        "throttle_reasons": None
        if reasons is None
        else tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit),
        "performance_state": nvml.whole("nvmlDeviceGetPerformanceState", handle),
    }


def _modes(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    compute = nvml.whole("nvmlDeviceGetComputeMode", handle)
    mig = nvml.flag("nvmlDeviceGetMigMode", handle)
    return {
        "persistence_mode": nvml.flag("nvmlDeviceGetPersistenceMode", handle),
        "compute_mode": _named(COMPUTE_MODES, compute),
        "mig_mode": mig,
        "mig_instances": _mig_instances(nvml, handle) if mig else (),
    }


def _mig_instances(nvml: Nvml, handle: Any) -> tuple[MigInstance, ...]:
    count = nvml.whole("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)]
    return tuple(
        MigInstance(
            uuid=_text(nvml.ask("nvmlDeviceGetUUID", instance)),
            name=_text(nvml.ask("nvmlDeviceGetName", instance)),
            memory_total_bytes=_memory_total(nvml, instance),
        )
        for instance in found
        if instance is not None
    )


def _memory_total(nvml: Nvml, handle: Any) -> int | None:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    return int(memory.total) if memory is not None else None


def _named(names: tuple[str | None, ...], number: int | None) -> str | None:
    return names[number] if number is not None and 0 <= number < len(names) else None


def _ecc(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    retired = [nvml.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
    known = [pages for pages in retired if pages is not None]
    return {
        "ecc_mode": nvml.flag("nvmlDeviceGetEccMode", handle),
        "ecc_uncorrected_volatile": nvml.whole("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
        "ecc_uncorrected_aggregate": nvml.whole("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, AGGREGATE),
        "ecc_corrected_volatile": nvml.whole("nvmlDeviceGetTotalEccErrors", handle, CORRECTED, VOLATILE),
        "row_remap_uncorrectable": rows[1] if rows else None,
        "row_remap_pending": bool(rows[2]) if rows else None,
        "row_remap_failed": bool(rows[3]) if rows else None,
        "retired_pages": sum(len(pages) for pages in known) if known else None,
        "retired_page_pending": nvml.flag("nvmlDeviceGetRetiredPagesPendingStatus", handle),
        "recovery_action": _recovery_action(nvml, handle),
        "inforom_corrupt": _inforom_corrupt(nvml, handle),
    }


def _recovery_action(nvml: Nvml, handle: Any) -> str | None:
    """From driver r570 on."""
    field = getattr(nvml.pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = nvml.ask("nvmlDeviceGetFieldValues", handle, [field]) if field is not None else None
    if not values or values[0].nvmlReturn != 0:
        return None
    return _named(RECOVERY_ACTIONS, int(values[0].value.uiVal))


def _inforom_corrupt(nvml: Nvml, handle: Any) -> bool | None:
    try:
        nvml.pynvml.nvmlDeviceValidateInforom(handle)
    except AttributeError:
        return None
    except nvml.pynvml.NVMLError as error:
        return True if nvml.error_name(error) == "NVML_ERROR_CORRUPTED_INFOROM" else None
    return False


def _fabric(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    """Version 3 has the health summary (driver r570 and newer), version 2 the state."""
    for kind in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        make = getattr(nvml.pynvml, kind, None)
        if make is None:
            continue
        info = make()
        if nvml.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is None:
            continue
        state = _named(FABRIC_STATES, int(info.state))
        return {
            "fabric_state": state,
            "fabric_status": _status(nvml, int(info.status)) if state == "completed" else None,
            "fabric_health": _named(FABRIC_HEALTH, int(getattr(info, "healthSummary", 0))),
        }
    return {}


def _status(nvml: Nvml, number: int) -> str:
    if number == 0:
        return "success"
    error = nvml.pynvml.NVMLError(number)
    return nvml.error_name(error).removeprefix("NVML_ERROR_").lower() or str(number)


def _place(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    """Which CPUs and which memory node are near."""
    words = ((os.cpu_count() or 1) + 63) // 64
    mask = nvml.ask("nvmlDeviceGetCpuAffinity", handle, words)
    return {
        "numa_node": nvml.whole("nvmlDeviceGetNumaNodeId", handle),
        "cpu_affinity": None
        if mask is None
        else tuple(word * 64 + bit for word in range(words) for bit in range(64) if mask[word] >> bit & 1),
    }
