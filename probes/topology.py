"""Read how the GPUs of this host are linked: NVLink, peer access, PCIe paths, ACS, IOMMU."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import msgspec

from gpudoctor.facts.topology import GpuPair, NvLink, Topology
from gpudoctor.probes import pci
from gpudoctor.probes.nvml import BoardLost, Nvml, started, sysfs_name, text
from gpudoctor.probes.system import System

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
READ, WRITE, OVER_NVLINK = 0, 1, 2  # nvml.h, nvmlGpuP2PCapsIndex_t; the binding's own name of the first is a tuple
REPLAY, RECOVERY, CRC_FLIT = 0, 1, 2  # nvml.h, nvmlNvLinkErrorCounter_t
PEER_KINDS = {0: "gpu", 1: "cpu", 2: "switch"}  # nvml.h, nvmlNvLinkDeviceType_t
LINK_COUNT = 91  # nvml.h, NVML_FI_DEV_NVLINK_LINK_COUNT
MOST_LINKS = 36  # nvml.h, NVML_NVLINK_MAX_LINKS
PARTS = {"nvmlDeviceGetP2PStatus": "pairs", "nvmlDeviceGetTopologyCommonAncestor": "pairs"}
"""Call → the part of the subject under which its failure is told; others are of the links."""


class _Board(msgspec.Struct):
    handle: Any
    slot: str | None = None
    links: list[NvLink] = msgspec.field(default_factory=list)
    lost: bool = False

    def up(self) -> list[NvLink]:
        return [link for link in self.links if link.active]


def read(system: System) -> Topology:
    """Raises NotRead without a driver. What needs root is in `unread`."""
    with started(system) as nvml:
        return topology(nvml, system)


def topology(nvml: Nvml, system: System) -> Topology:
    """As `read`, of a started NVML."""
    boards = {
        index: _board(nvml, index, handle)
        for index, handle in enumerate(nvml.handles())
        if not isinstance(handle, Exception)
    }
    boards = {index: board for index, board in boards.items() if not board.lost}
    links = tuple(link for board in boards.values() for link in board.links)
    slots = {index: board.slot for index, board in boards.items() if board.slot is not None}
    bridges, unread = pci.acs_bridges(system, slots)
    return Topology(
        nvlinks=links or None,
        pairs=tuple(_pair(nvml, boards, first, second) for first, second in combinations(boards, 2)),
        acs_bridges=bridges,
        iommu_mode=pci.iommu_mode(system, tuple(slots.values())),
        nvswitches=pci.switches(system),
        unread={**{PARTS.get(name, "nvlinks"): reason for name, reason in nvml.failed.items()}, **unread},
    )


def _board(nvml: Nvml, index: int, handle: Any) -> _Board:
    board = _Board(handle)
    try:
        board.slot = nvml.slot(handle)
        for link in range(_link_count(nvml, handle)):
            active = nvml.flag("nvmlDeviceGetNvLinkState", handle, link)
            if active is None and link == 0:
                break  # a board without NVLink
            if active is not None:
                board.links.append(_link(nvml, index, handle, link, active, board.up()))
    except BoardLost:
        board.lost = True
    return board


def _link_count(nvml: Nvml, handle: Any) -> int:
    values = nvml.ask("nvmlDeviceGetFieldValues", handle, [LINK_COUNT])
    if not values or values[0].nvmlReturn != 0:
        return MOST_LINKS
    return min(int(values[0].value.uiVal), MOST_LINKS)


def _link(nvml: Nvml, gpu: int, handle: Any, link: int, active: bool, others: list[NvLink]) -> NvLink:
    if not active:
        return NvLink(gpu=gpu, link=link, active=False)
    # A board on switches has all its links on them: no need to ask each, of 144 on a host.
    kind = "switch" if others and others[0].peer_kind == "switch" else _peer_kind(nvml, handle, link)
    remote = nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if kind != "switch" else None
    crc, replay, recovery = (
        nvml.whole("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter) for counter in (CRC_FLIT, REPLAY, RECOVERY)
    )
    return NvLink(
        gpu=gpu,
        link=link,
        active=True,
        peer=text(remote.busId) if remote is not None else None,
        peer_kind=kind,
        crc_errors=crc,
        replay_errors=replay,
        recovery_errors=recovery,
    )


def _peer_kind(nvml: Nvml, handle: Any, link: int) -> str | None:
    kind = nvml.whole("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    return None if kind is None else PEER_KINDS.get(kind)


def _pair(nvml: Nvml, boards: Mapping[int, _Board], first: int, second: int) -> GpuPair:
    one, other = boards[first], boards[second]
    ends = (one.handle, other.handle)
    try:
        count = _nvlinks_between(one, other)
        # Only of boards with links up, and where the far ends' bus ids (made up in virtual machines) match none.
        unmatched = not count and one.up() and other.up()
        linked = unmatched and nvml.whole("nvmlDeviceGetP2PStatus", *ends, OVER_NVLINK) == 0
        level = None if count else nvml.whole("nvmlDeviceGetTopologyCommonAncestor", *ends)
        known = [
            answer
            for what in (READ, WRITE)
            if (answer := nvml.whole("nvmlDeviceGetP2PStatus", *ends, what)) is not None
        ]
    except BoardLost:
        return GpuPair(first=first, second=second)
    worst = max(known, default=None)
    return GpuPair(
        first=first,
        second=second,
        path=f"NV{count}" if count else PATHS.get(level) if level is not None else None,
        nvlink=bool(count) or bool(linked),
        peer_access=worst == 0 if worst is not None else None,
        peer_status=None if worst is None else PEER_STATUS[min(worst, len(PEER_STATUS) - 1)],
    )


def _nvlinks_between(one: _Board, other: _Board) -> int:
    """Direct ones; through switches, the fewer of the two boards' links, as `nvidia-smi topo -m` counts."""
    if direct := sum(_slot_of(link.peer) == other.slot for link in one.up() if other.slot):
        return direct
    return min(sum(link.peer_kind == "switch" for link in board.up()) for board in (one, other))


def _slot_of(bus_id: str | None) -> str | None:
    try:
        return sysfs_name(bus_id or "")
    except ValueError:
        return None
