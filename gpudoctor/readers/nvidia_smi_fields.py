"""What each line of `nvidia-smi -q` means: its section, its key, the field of a board that it fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudoctor.readers.quantities import bus_id, flag, number, size, whole

MOST_PROCESSES = 4096

SECTIONS = frozenset(
    (
        *(
            "MIG Mode",
            "PCI",
            "FB Memory Usage",
            "Utilization",
            "ECC Mode",
            "ECC Errors",
            "Retired Pages",
            "Remapped Rows",
        ),
        *("Temperature", "Power Readings", "GPU Power Readings", "Module Power Readings", "Power Samples", "Clocks"),
        *("Applications Clocks", "Default Applications Clocks", "Max Clocks", "Max Customer Boost Clocks", "Fabric"),
        *("Clocks Throttle Reasons", "Clocks Event Reasons", "Clocks Event Reasons Counters", "BAR1 Memory Usage"),
        *("Conf Compute Protected Memory Usage", "Processes", "Driver Model", "Inforom Version", "Capabilities"),
        *("GPU Operation Mode", "GPU Virtualization Mode", "GSP Firmware", "Encoder Stats", "FBC Stats", "IBMNPU"),
        *("GPU Memory Power Readings", "Deferred Clocks", "Voltage", "Workload Power Profiles", "Platform Info"),
        *("Accounting Mode", "DRAM Encryption Mode", "EDPp Multiplier", "Power Smoothing", "Sparse Operation Mode"),
    )
)
PARTS = frozenset(
    (
        *("Volatile", "Aggregate", "Single Bit", "Double Bit", "GPU Link Info", "PCIe Generation", "Link Width"),
        *("Health", "Single Bit ECC", "Double Bit ECC", "Atomic Caps Outbound", "Aggregate Uncorrectable SRAM Sources"),
        *("Bridge Chip", "Bank Remap Availability Histogram", "SRAM Sources", "Clocks Event Reasons Counters"),
    )
)
"""Headings inside a section."""
BITS = frozenset({"Single Bit", "Double Bit"})
"""Headings inside Volatile and Aggregate, of boards before Ampere."""
MODES = frozenset({"Persistence Mode", "GPU Recovery Action", "Compute Mode", "Performance State"})
PLAIN: dict[str, str] = {
    "Product Name": "name",
    "GPU UUID": "uuid",
    "Serial Number": "serial",
    "VBIOS Version": "vbios",
}
FLAGS: dict[tuple[str, str], str] = {
    ("MIG Mode", "Current"): "mig_mode",
    ("ECC Mode", "Current"): "ecc_mode",
    ("Retired Pages", "Pending Page Blacklist"): "retired_page_pending",
    ("Retired Pages", "Pending"): "retired_page_pending",
    ("Remapped Rows", "Pending"): "row_remap_pending",
    ("Remapped Rows", "Remapping Failure Occurred"): "row_remap_failed",
}
WHOLES: dict[tuple[str, str], str] = {
    ("Remapped Rows", "Uncorrectable Error"): "row_remap_uncorrectable",
    ("PCI", "Replays Since Reset"): "pcie_replays",
    ("Temperature", "GPU Current Temp"): "temperature_c",
    ("Clocks", "SM"): "clock_sm_mhz",
    ("Max Clocks", "SM"): "clock_sm_max_mhz",
    ("Applications Clocks", "Graphics"): "clock_application_mhz",
    ("Default Applications Clocks", "Graphics"): "clock_application_default_mhz",
}
SIZES: dict[tuple[str, str], str] = {
    ("FB Memory Usage", "Total"): "memory_total_bytes",
    ("FB Memory Usage", "Used"): "memory_used_bytes",
    ("FB Memory Usage", "Reserved"): "memory_reserved_bytes",
}
POWER: dict[str, str] = {
    "Power Draw": "power_w",
    "Instantaneous Power Draw": "power_w",
    "Average Power Draw": "power_w",
    "Power Limit": "power_limit_w",
    "Current Power Limit": "power_limit_w",
    "Enforced Power Limit": "power_limit_w",
    "Default Power Limit": "power_limit_default_w",
}
REASONS: dict[str, str] = {
    "Idle": "gpu_idle",
    "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "Display Clock Setting": "display_clock_setting",
}
RECOVERY: dict[str, str] = {
    "none": "none",
    "reset": "gpu_reset",
    "gpu reset": "gpu_reset",
    "reboot": "node_reboot",
    "node reboot": "node_reboot",
    "drain p2p": "drain_p2p",
    "drain and reset": "drain_and_reset",
    "recover imex domain": "recover_imex_domain",
}
STATES = {"n/a": "not_supported", "not supported": "not_supported", "not started": "not_started"}


def take_plain(board: dict[str, Any], section: str, key: str, value: str) -> bool:
    """One line, one field. False where the line is none of these."""
    place = (section, key)
    if key in PLAIN:
        if value not in {"N/A", ""}:
            board[PLAIN[key]] = value
    elif key in MODES:
        _take_mode(board, key, value)
    elif place in FLAGS:
        board[FLAGS[place]] = flag(value)
    elif place in WHOLES:
        board[WHOLES[place]] = whole(value)
    elif place in SIZES:
        board[SIZES[place]] = size(value)
    else:
        return False
    return True


def _take_mode(board: dict[str, Any], key: str, value: str) -> None:
    if key == "Persistence Mode":
        board["persistence_mode"] = flag(value)
    elif key == "Performance State":
        board["performance_state"] = whole(value.lstrip("P"))
    elif key == "GPU Recovery Action":
        board["recovery_action"] = RECOVERY.get(value.lower())
    elif value not in {"N/A", "Requested functionality has been deprecated"}:
        board["compute_mode"] = value.lower().replace(" ", "_")


def _take_ecc(board: dict[str, Any], part: str, key: str, value: str) -> None:
    """Ampere and newer list SRAM and DRAM; older boards count single and double bits, with a total of each."""
    count = whole(value)
    if count is None:
        return
    counts = board.setdefault("_ecc", {})
    period, _, bits = part.partition(" ")
    if bits in BITS:
        if key == "Total":
            counts[period, "uncorrected" if bits == "Double Bit" else "corrected"] = count
    elif "Uncorrectable" in key or key.endswith("Correctable"):
        kind = (period, "uncorrected" if "Uncorrectable" in key else "corrected")
        counts[kind] = counts.get(kind, 0) + count


def _take_link(board: dict[str, Any], part: str, key: str, value: str) -> None:
    if key == "Bus Id":
        board["pci_bus_id"] = bus_id(value)
    elif part in {"PCIe Generation", "Link Width"} and key in {"Max", "Current"}:
        field = "pcie_generation" if part == "PCIe Generation" else "pcie_width"
        board[field + ("_max" if key == "Max" else "")] = whole(value)


def _take_fabric(board: dict[str, Any], part: str, key: str, value: str) -> None:
    words = value.lower()
    if key == "State":
        board["fabric_state"] = STATES.get(words, words.replace(" ", "_"))
    elif key == "Status" and words != "n/a":
        board["fabric_status"] = words.replace(" ", "_")
    elif key == "Summary" and part == "Health" and words != "n/a":
        board["fabric_health"] = words.replace(" ", "_")


def _take_process(board: dict[str, Any], _: str, key: str, value: str) -> None:
    told = board.setdefault("_processes", [])
    if key == "Process ID" and (pid := whole(value)) is not None:
        if len(told) < MOST_PROCESSES:
            told.append({"pid": pid})
    elif told and key == "Type":
        told[-1]["kind"] = "compute" if value in {"C", "M+C"} else "graphics"
    elif told and key == "Name":
        told[-1]["name"] = value
    elif told and key == "Used GPU Memory":
        told[-1]["memory_bytes"] = size(value)


def _take_power(board: dict[str, Any], _: str, key: str, value: str) -> None:
    # The draw of this moment, and the limit that is enforced, stand before and after others of the same field.
    if key in POWER and (watts := number(value)) is not None:
        board[POWER[key]] = watts


def _take_reason(board: dict[str, Any], _: str, key: str, value: str) -> None:
    if key in REASONS:
        board.setdefault("throttle_reasons", {})[REASONS[key]] = flag(value)


def _take_load(board: dict[str, Any], _: str, key: str, value: str) -> None:
    if key in {"Gpu", "GPU"}:
        rate = number(value)
        board["utilization_ratio"] = None if rate is None else rate / 100


def _take_pages(board: dict[str, Any], _: str, key: str, value: str) -> None:
    count = whole(value)
    if count is not None and (key.endswith("Bit ECC") or key == "Retired Count"):
        board["retired_pages"] = board.get("retired_pages", 0) + count


TAKE: dict[str, Callable[[dict[str, Any], str, str, str], None]] = {
    "Power Readings": _take_power,
    "GPU Power Readings": _take_power,
    "Clocks Throttle Reasons": _take_reason,
    "Clocks Event Reasons": _take_reason,
    "ECC Errors": _take_ecc,
    "Utilization": _take_load,
    "PCI": _take_link,
    "Fabric": _take_fabric,
    "Retired Pages": _take_pages,
    "Processes": _take_process,
}
"""Section → what its lines are made of."""
