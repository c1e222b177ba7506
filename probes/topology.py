"""Read how the GPUs of this host are linked: NVLink, peer access, PCIe paths, ACS, IOMMU."""

from __future__ import annotations

import os
import struct
from itertools import combinations
from pathlib import Path
from typing import Any

from gpudoctor.facts.topology import AcsBridge, GpuPair, NvLink, Topology
from gpudoctor.probes.gpu import sysfs_name
from gpudoctor.probes.nvml import BoardLost, Nvml, started
from gpudoctor.probes.system import NotRead, System

PATHS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # nvml.h, nvmlGpuTopologyLevel_t
PEER_STATUS = (
    "ok",
    "chipset_not_supported",
    "gpu_not_supported",
    "topology_not_supported",
    "disabled_by_regkey",
    "not_supported",
    "unknown",
)  # nvml.h, nvmlGpuP2PStatus_t
READ, WRITE = 0, 1
REPLAY, RECOVERY, CRC_FLIT = 0, 1, 2
MOST_LINKS = 18
NVIDIA, SWITCH_CLASS = "0x10de", "0x068000"
ACS_CAPABILITY = 0x000D
REDIRECTS = 0x0C
"""P2P Request Redirect and P2P Completion Redirect in the ACS control register (PCI Express Base, 7.7.8.3)."""


def read(system: System) -> Topology:
    """Raises NotRead without a driver. What needs root is in `unread`."""
    with started(system) as nvml:
        return topology(nvml, system)


def topology(nvml: Nvml, system: System) -> Topology:
    """As `read`, of a started NVML."""
    boards = {index: handle for index, handle in enumerate(nvml.handles()) if not isinstance(handle, Exception)}
    links = [link for index, handle in boards.items() for link in _links(nvml, index, handle)]
    unread: dict[str, str] = {}
    bridges: tuple[AcsBridge, ...] | None = None
    try:
        bridges = _acs_bridges(nvml, system, boards)
    except NotRead as error:
        unread["acs_bridges"] = str(error)
    return Topology(
        nvlinks=tuple(links) if any(link.active is not None for link in links) else None,
        pairs=tuple(
            _pair(nvml, links, (first, boards[first]), (second, boards[second]))
            for first, second in combinations(boards, 2)
        ),
        acs_bridges=bridges,
        iommu_mode=_iommu_mode(system),
        nvswitches=_switches(system),
        unread=unread,
    )


def _links(nvml: Nvml, gpu: int, handle: Any) -> list[NvLink]:
    """Up to the first link that the board does not know."""
    found: list[NvLink] = []
    try:
        for link in range(getattr(nvml.pynvml, "NVML_NVLINK_MAX_LINKS", MOST_LINKS)):
            active = nvml.flag("nvmlDeviceGetNvLinkState", handle, link)
            if active is None:
                break
            remote = nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if active else None
            peer = getattr(remote, "busId", None)
            found.append(
                NvLink(
                    gpu=gpu,
                    link=link,
                    active=active,
                    peer=peer.decode(errors="replace") if isinstance(peer, bytes) else peer,
                    crc_errors=nvml.whole("nvmlDeviceGetNvLinkErrorCounter", handle, link, CRC_FLIT),
                    replay_errors=nvml.whole("nvmlDeviceGetNvLinkErrorCounter", handle, link, REPLAY),
                    recovery_errors=nvml.whole("nvmlDeviceGetNvLinkErrorCounter", handle, link, RECOVERY),
                )
            )
    except BoardLost:
        return found
    return found


def _pair(nvml: Nvml, links: list[NvLink], one: tuple[int, Any], other: tuple[int, Any]) -> GpuPair:
    (first, first_handle), (second, second_handle) = one, other
    try:
        level = nvml.whole("nvmlDeviceGetTopologyCommonAncestor", first_handle, second_handle)
        answers = [nvml.whole("nvmlDeviceGetP2PStatus", first_handle, second_handle, what) for what in (READ, WRITE)]
        count = _nvlinks_between(nvml, links, one, other)
    except BoardLost:
        return GpuPair(first=first, second=second)
    known = [answer for answer in answers if answer is not None]
    worst = max(known, default=None)
    return GpuPair(
        first=first,
        second=second,
        path=f"NV{count}" if count else PATHS.get(level) if level is not None else None,
        peer_access=all(answer == 0 for answer in known) if known else None,
        peer_status=None if worst is None else PEER_STATUS[worst] if worst < len(PEER_STATUS) else "unknown",
    )


def _nvlinks_between(nvml: Nvml, links: list[NvLink], one: tuple[int, Any], other: tuple[int, Any]) -> int:
    """Direct ones; through switches, the fewer of the two boards' links, as `nvidia-smi topo -m` counts."""
    ends = [nvml.ask("nvmlDeviceGetPciInfo", handle) for _, handle in (one, other)]
    names = [end.busId.decode() if isinstance(end.busId, bytes) else end.busId for end in ends if end is not None]
    if len(names) < 2:
        return 0
    own = [[link for link in links if link.gpu == gpu and link.active] for gpu, _ in (one, other)]
    direct = sum(_same_slot(link.peer, names[1]) for link in own[0])
    if direct:
        return direct
    # Links that end at no board of this host end at switches.
    boards = {link.gpu: link for link in links}
    if not boards or not all(own):
        return 0
    return min(
        sum(_at_switch(nvml, handle, link) for link in mine)
        for (_, handle), mine in zip((one, other), own, strict=True)
    )


def _at_switch(nvml: Nvml, handle: Any, link: NvLink) -> bool:
    switch = getattr(nvml.pynvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2)
    return nvml.whole("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link.link) == switch


def _same_slot(one: str | None, other: str) -> bool:
    try:
        return one is not None and sysfs_name(one) == sysfs_name(other)
    except ValueError:
        return False


def _iommu_mode(system: System) -> str | None:
    """How the kernel's IOMMU treats devices: by the type of their groups."""
    kinds = {
        system.text_or_none(f"/{path.relative_to(system.root)}")
        for path in system.glob("/sys/kernel/iommu_groups/*/type")
    }
    if any(kind is not None and kind.startswith("DMA") for kind in kinds):
        return "translate"
    if "identity" in kinds:
        return "passthrough"
    return "off" if system.path("/sys/kernel/iommu_groups").is_dir() and not kinds else None


def _switches(system: System) -> int | None:
    """NVIDIA's bridges of class 0680; older NVSwitches are those, newer ones stand on a bus of their own."""
    if not system.path("/sys/bus/pci/devices").is_dir():
        return None
    return sum(
        _word(folder, "vendor") == NVIDIA and _word(folder, "class") == SWITCH_CLASS
        for folder in system.glob("/sys/bus/pci/devices/*")
    )


def _word(folder: Path, name: str) -> str | None:
    try:
        return (folder / name).read_text().strip()
    except OSError:
        return None


def _acs_bridges(nvml: Nvml, system: System, boards: dict[int, Any]) -> tuple[AcsBridge, ...] | None:
    """Bridges above boards that redirect peer traffic. None in a virtual machine; raises NotRead without root."""
    if len(boards) < 2:
        return ()
    if "hypervisor" in (system.text_or_none("/proc/cpuinfo") or "").partition("\n\n")[0]:
        return None
    above: dict[Path, list[int]] = {}
    for index, handle in boards.items():
        pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
        name = sysfs_name(pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId)
        folder = Path(os.path.realpath(system.path(f"/sys/bus/pci/devices/{name}"))).parent
        while (folder / "config").is_file():
            above.setdefault(folder, []).append(index)
            folder = folder.parent
    return tuple(
        AcsBridge(bus_id=folder.name, gpus=tuple(gpus))
        for folder, gpus in above.items()
        if acs_redirects((folder / "config").read_bytes())
    )


def acs_redirects(config: bytes) -> bool:
    """The bridge's Access Control Services send requests or completions between its children up to the root.

    Raises NotRead where the extended part of the configuration space is not there, which needs root.
    """
    if len(config) <= 0x100:
        raise NotRead("the PCI configuration space needs root")
    at = 0x100
    for _ in range(96):
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return bool(control & REDIRECTS)
        at = header >> 20
        if at < 0x100 or at + 8 > len(config):
            return False
    return False
