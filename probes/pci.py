"""Read what the PCI bus says of the way between GPUs: bridges with ACS, the IOMMU, NVSwitches. Asks no driver."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpudoctor.facts.topology import AcsBridge
from gpudoctor.probes.host import virtual_machine
from gpudoctor.probes.system import System

NVIDIA, SWITCH_CLASS = "0x10de", "0x068000"
ACS_CAPABILITY, EXPRESS_CAPABILITY = 0x000D, 0x10
REDIRECTS = 0x0C
"""P2P Request Redirect and P2P Completion Redirect in the ACS control register (PCI Express Base, 7.7.8.3)."""
PORTS = {4: "root", 5: "upstream", 6: "downstream"}  # PCI Express Base, 7.5.3.2, Device/Port Type
PLAIN = 0x40
"""Bytes of the configuration space that everybody may read; PCI devices have 256, PCI Express ones 4096."""


def acs_bridges(system: System, slots: Mapping[int, str]) -> tuple[tuple[AcsBridge, ...] | None, dict[str, str]]:
    """Bridges above two boards or more that redirect peer traffic, and what could not be read.

    None in a virtual machine, whose bridges are made up, and where reading them needs root.
    """
    if len(slots) < 2:
        return (), {}
    if virtual_machine(system):
        return None, {}
    above: dict[Path, list[int]] = {}
    for index, slot in slots.items():
        folder = system.path(f"/sys/bus/pci/devices/{slot}").resolve().parent
        while (folder / "config").is_file():
            above.setdefault(folder, []).append(index)
            folder = folder.parent
    found: list[AcsBridge] = []
    for folder, gpus in above.items():
        try:
            config = (folder / "config").read_bytes()
        except OSError as error:
            return None, {"acs_bridges": f"{folder.name}: {error.strerror}"}
        if len(config) <= PLAIN:
            return None, {"acs_bridges": "needs root"}
        if acs_redirects(config):
            found.append(AcsBridge(bus_id=folder.name, gpus=tuple(gpus), port=port(config)))
    # No bridge at all above a board: sysfs hides them (some containers).
    return (tuple(found), {}) if above else (None, {})


def acs_redirects(config: bytes) -> bool:
    """The bridge's Access Control Services send requests or completions between its neighbours up to the root."""
    at, seen = 0x100, set[int]()
    while 0x100 <= at <= len(config) - 8 and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return bool(control & REDIRECTS)
        at = header >> 20
    return False


def port(config: bytes) -> str | None:
    """What kind of port a bridge is; None where it is no PCI Express one."""
    at, seen = config[0x34] & 0xFC, set[int]()
    while PLAIN <= at < 0xFC and at not in seen:
        seen.add(at)
        if config[at] == EXPRESS_CAPABILITY:
            return PORTS.get(config[at + 2] >> 4)
        at = config[at + 1] & 0xFC
    return None


def iommu_mode(system: System, slots: Iterable[str]) -> str | None:
    """How the kernel's IOMMU treats the boards, by the type of their groups; else by the kernel's command line."""
    groups = system.path("/sys/kernel/iommu_groups")
    if groups.is_dir() and not any(groups.iterdir()):
        return "off"
    kinds = {system.text_or_none(f"/sys/bus/pci/devices/{slot}/iommu_group/type") for slot in slots}
    if any(kind is not None and kind.startswith("DMA") for kind in kinds):
        return "translate"
    if "identity" in kinds:
        return "passthrough"
    words = (system.text_or_none("/proc/cmdline") or "").split()
    if {"iommu=pt", "iommu.passthrough=1"} & set(words):
        return "passthrough"
    return "off" if any(re.fullmatch(r"(intel_|amd_)?iommu=off", word) for word in words) else None


def switches(system: System) -> int | None:
    """NVIDIA's bridges of class 0680; None where there is no PCI bus to be seen."""
    if not system.path("/sys/bus/pci/devices").is_dir():
        return None
    devices = [f"/sys/bus/pci/devices/{folder.name}" for folder in system.glob("/sys/bus/pci/devices/*")]
    return sum(
        system.text_or_none(f"{device}/vendor") == NVIDIA and system.text_or_none(f"{device}/class") == SWITCH_CLASS
        for device in devices
    )
