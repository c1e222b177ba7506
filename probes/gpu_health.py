"""Read the health of a GPU board: memory errors, the driver's own advice, the InfoROM, its place in the fabric."""

from __future__ import annotations

import ctypes
from typing import Any

from gpudoctor.probes.nvml import Nvml, named
from gpudoctor.probes.system import System

RECOVERY_ACTION = 230  # nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; bindings before r570 lack the name
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
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_HEALTH = (None, "healthy", "unhealthy", "limited_capacity")
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1


def read(nvml: Nvml, handle: Any, _: System) -> dict[str, Any]:
    """Fields of Gpu. Raises BoardLost."""
    return {**_ecc(nvml, handle), **_fabric(nvml, handle)}


def _ecc(nvml: Nvml, handle: Any) -> dict[str, Any]:
    ecc = nvml.flag("nvmlDeviceGetEccMode", handle)
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    # Boards that remap rows (Ampere and newer) retire no pages.
    retired = [nvml.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)] if rows is None else []
    known = [pages for pages in retired if pages is not None]

    def count(kind: int, span: int) -> int | None:
        return nvml.whole("nvmlDeviceGetTotalEccErrors", handle, kind, span) if ecc else None

    return {
        "ecc_mode": ecc,
        "ecc_uncorrected_volatile": count(UNCORRECTED, VOLATILE),
        "ecc_uncorrected_aggregate": count(UNCORRECTED, AGGREGATE),
        "ecc_corrected_volatile": count(CORRECTED, VOLATILE),
        "row_remap_uncorrectable": rows[1] if rows else None,
        "row_remap_pending": bool(rows[2]) if rows else None,
        "row_remap_failed": bool(rows[3]) if rows else None,
        "retired_pages": sum(len(pages) for pages in known) if known else None,
        "retired_page_pending": nvml.flag("nvmlDeviceGetRetiredPagesPendingStatus", handle) if known else None,
        "recovery_action": _recovery_action(nvml, handle),
        "inforom_corrupt": _inforom_corrupt(nvml, handle),
    }


def _recovery_action(nvml: Nvml, handle: Any) -> str | None:
    """From driver r570 on."""
    values = nvml.ask("nvmlDeviceGetFieldValues", handle, [RECOVERY_ACTION])
    if not values or values[0].nvmlReturn != 0:
        return None
    return named(RECOVERY_ACTIONS, int(values[0].value.uiVal))


def _inforom_corrupt(nvml: Nvml, handle: Any) -> bool | None:
    """WHY not nvmlDeviceValidateInforom: it reads the whole flash, this the checksum of its settings."""
    try:
        nvml.pynvml.nvmlDeviceGetInforomConfigurationChecksum(handle)
    except AttributeError:
        return None
    except nvml.pynvml.NVMLError as error:
        return True if nvml.error_name(error) == "NVML_ERROR_CORRUPTED_INFOROM" else None
    return False


def _fabric(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """Version 3 has the health summary (driver r570 and newer), version 2 the state."""
    for kind in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        make = getattr(nvml.pynvml, kind, None)
        if make is None:
            continue
        info = make()
        if nvml.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is None:
            continue
        state = named(FABRIC_STATES, int(info.state))
        return {
            "fabric_state": state,
            "fabric_status": _status(nvml, int(info.status)) if state == "completed" else None,
            "fabric_health": named(FABRIC_HEALTH, int(getattr(info, "healthSummary", 0))),
        }
    return {}


def _status(nvml: Nvml, number: int) -> str:
    if number == 0:
        return "success"
    return nvml.error_name(nvml.pynvml.NVMLError(number)).removeprefix("NVML_ERROR_").lower() or str(number)
