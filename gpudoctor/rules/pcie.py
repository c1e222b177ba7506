"""Rules on PCIe: the link of each board, and what stands in the way of copies between boards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.topology import AcsBridge, GpuPair
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import boards, busy, is_laptop, linked, place, used_pairs
from gpudoctor.rules.measured import slow_links_under_load
from gpudoctor.snapshot import Snapshot

NVML = "NVML API reference"
NCCL_GUIDE = "NVIDIA NCCL user guide, Troubleshooting"
MOST_REPLAYS_PER_S = 50.0
"""Our bound. DCGM warns from 8 a minute on (dcgm_gpu_hardware_limits.h), which takes minutes to see; the probe watches
for a fraction of a second, in which one or two replays prove nothing."""
ACS_OFF = Fix("switch ACS off in the firmware setup (often beside SR-IOV or IOMMU)", safety="restarts")


@rule(
    "PCI001",
    "narrow-pcie-link",
    Severity.WARNING,
    why="host-to-device copies slow down in proportion, and one slow rank holds back all others",
    fix=Fix("reseat the board or riser; look for a bifurcated slot in the firmware setup", safety="restarts"),
    confirm="nvidia-smi -q | grep -A 12 'GPU Link Info'",
    source=f"{NVML}, nvmlDeviceGetCurrPcieLinkWidth and nvmlDeviceGetMaxPcieLinkWidth",
)
def narrow_pcie_link(machine: Snapshot) -> Iterator[Evidence]:
    """A board runs on fewer PCIe lanes than board and slot have.

    Silent where the slot has no more, on laptops, for idle GeForce boards (some narrow their link at idle), for boards
    that reach the processor by NVLink-C2C, and in virtual machines, whose bridges are made up.
    """
    if _virtual(machine):
        return
    for board in boards(machine):
        if board.pcie_width is None or board.pcie_width_max is None or board.memory_node is not None:
            continue
        most = min(board.pcie_width_max, board.pcie_slot_width or board.pcie_width_max)
        rests = "GeForce" in (board.name or "") and not busy(board)
        if 0 < board.pcie_width < most and not rests and not is_laptop(board):
            yield Evidence(where=place(board), what="PCIe lanes", seen=f"x{board.pcie_width}", wanted=f"x{most}")


@rule(
    "PCI002",
    "slow-pcie-link",
    Severity.WARNING,
    why="host-to-device copies slow down in proportion, and one slow rank holds back all others",
    fix=Fix("set the slot's speed to automatic in the firmware setup; reseat the board or riser", safety="restarts"),
    confirm="nvidia-smi -q | grep -A 12 'GPU Link Info' (under load)",
    source=f"{NVML}, nvmlDeviceGetCurrPcieLinkGeneration and nvmlDeviceGetMaxPcieLinkGeneration",
)
def slow_pcie_link(machine: Snapshot) -> Iterator[Evidence]:
    """Under load (a job's, or that of --deep) a board's link runs at a lower PCIe generation than board and slot can do
    together.

    Silent at idle, when every board lowers it, and where nothing says that the board is under load.
    """
    if measured := list(slow_links_under_load(machine)):
        yield from measured
        return
    for board in boards(machine):
        now, most = board.pcie_generation, board.pcie_generation_max
        if busy(board) and now is not None and most is not None and now < most:
            yield Evidence(where=place(board), what="PCIe generation under load", seen=str(now), wanted=str(most))


@rule(
    "PCI003",
    "pcie-replays",
    Severity.WARNING,
    why="packets are sent again: the link is marginal, slows down, and may fail",
    fix=Fix("reseat the board or riser; look at the kernel log for PCIe (AER) errors", "sudo dmesg | grep -i aer"),
    confirm="nvidia-smi -q | grep -i replay (twice)",
    source=f"{NVML}, nvmlDeviceGetPcieReplayCounter; the bound is ours",
)
def pcie_replays(machine: Snapshot) -> Iterator[Evidence]:
    """Replays went up while the probe watched, at more than 50 a second.

    Silent about the count over the board's life, which every change of speed adds to, and about one or two replays.
    """
    for board in boards(machine):
        rate = board.pcie_replays_per_s
        if rate is not None and rate > MOST_REPLAYS_PER_S:
            yield Evidence(where=place(board), what="PCIe replays", seen=f"{rate:.0f} a second", wanted="none")


@rule(
    "PCI004",
    "acs-redirects-p2p",
    Severity.ERROR,
    why="peer copies go up to the root complex and back: they slow down, and NCCL can hang or lose data",
    fix=ACS_OFF,
    confirm="sudo lspci -vvv | grep -i acsctl",
    source=f"{NCCL_GUIDE}, PCI Access Control Services",
)
def acs_redirects_p2p(machine: Snapshot) -> Iterator[Evidence]:
    """A PCI switch between two GPUs redirects what they send each other, or a root port does under an IOMMU that
    translates; or, in a paste of lspci, bridges do that may be those (likely).

    Silent in virtual machines, where ACS must stay on; between GPUs that NVLink joins or that the driver allows no peer
    access; and for root ports alone, which send everything to the root whatever ACS says.
    """
    bridges = (machine.topology.acs_bridges if machine.topology is not None else None) or ()
    pairs = _over_pcie(machine)
    if _virtual(machine) or not pairs:
        return
    translates = machine.topology is not None and machine.topology.iommu_mode == "translate"
    between = [bridge for bridge in bridges if any(_redirects(bridge, pair, translates) for pair in pairs)]
    if between:
        below = "; ".join(f"{bridge.bus_id} above GPU {', '.join(map(str, bridge.gpus))}" for bridge in between[:8])
        more = f" and {len(between) - 8} more" if len(between) > 8 else ""
        fixes = (ACS_OFF, _until_reboot(between))
        yield Evidence(what="ACS on PCI bridges", seen=f"redirects: {below}{more}", wanted="off", fix=fixes)
    # lspci does not tell which GPUs a bridge is above.
    elif nameless := [bridge for bridge in bridges if not bridge.gpus]:
        seen = f"{len(nameless)} redirect peer requests"
        yield Evidence(what="ACS on PCI bridges", seen=seen, wanted="off above GPUs", confidence="likely")


def _redirects(bridge: AcsBridge, pair: GpuPair, translates: bool) -> bool:
    """It stands on the way between the two, so one of them is below it and the other is not."""
    if (pair.first in bridge.gpus) == (pair.second in bridge.gpus):
        return False
    return translates if bridge.port == "root" else pair.path in {"PIX", "PXB", None}


def _until_reboot(bridges: list[AcsBridge]) -> Fix:
    names = [bridge.bus_id for bridge in bridges if re.fullmatch(r"[0-9a-f:.]+", bridge.bus_id)]
    command = f"for bridge in {' '.join(names)}; do sudo setpci -s $bridge ECAP_ACS+6.w=0; done"
    return Fix("or switch it off until the next reboot", command if names else None, safety="needs root")


@rule(
    "PCI005",
    "iommu-translates",
    Severity.WARNING,
    why="peer copies through PCIe are translated: they slow down, and on some systems NCCL hangs",
    fix=Fix("add iommu=pt to the kernel's command line and reboot", safety="restarts"),
    confirm="cat /sys/kernel/iommu_groups/*/type | sort | uniq -c; cat /proc/cmdline",
    source=f"{NCCL_GUIDE}, IO virtualization",
)
def iommu_translates(machine: Snapshot) -> Iterator[Evidence]:
    """The IOMMU translates the addresses of devices, on a machine whose GPUs talk over PCIe; or RCCL asks for iommu=pt.

    Silent with one GPU, with NVLink between all, where the driver allows no peer access, and in virtual machines.
    """
    if machine.nccl_log is not None and machine.nccl_log.wants_passthrough:
        yield Evidence(what="kernel command line", seen="no iommu=pt (RCCL's warning)", wanted="iommu=pt")
        return
    if machine.topology is None or machine.topology.iommu_mode != "translate" or _virtual(machine):
        return
    if _over_pcie(machine):
        yield Evidence(what="IOMMU", seen="translates", wanted="off, or passthrough (iommu=pt)")


def _virtual(machine: Snapshot) -> bool:
    """Known to be a virtual machine; pasted text seldom tells."""
    return machine.host is not None and machine.host.virtual_machine is True


def _over_pcie(machine: Snapshot) -> list[GpuPair]:
    """Pairs of a job's GPUs that copy to each other through PCIe."""
    return [pair for pair in used_pairs(machine) if not linked(pair) and pair.peer_access is not False]


RULES: tuple[Rule[Snapshot], ...] = (
    narrow_pcie_link,
    slow_pcie_link,
    pcie_replays,
    acs_redirects_p2p,
    iommu_translates,
)
