"""Links: PCIe of each board, NVLink between boards, and where boards sit in the machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.topology import GpuPair, NvLink
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import boards, busy, place, used
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import gpus as table

NVML = "NVML API reference"
REPLAYS_PER_S = 1.0  # a link without faults replays nothing; a handful at a change of speed is normal


@rule(
    "PCI001",
    "narrow-pcie-link",
    Severity.WARNING,
    why="host-to-device copies slow down in proportion, and one slow rank holds back all others",
    fix=Fix("reseat the board or riser; look for a bifurcated slot in the firmware setup", safety="restarts"),
    confirm="nvidia-smi -q -d PCIE",
    source=f"{NVML}, nvmlDeviceGetCurrPcieLinkWidth and nvmlDeviceGetMaxPcieLinkWidth",
)
def narrow_pcie_link(machine: Snapshot) -> Iterator[Evidence]:
    """A board runs on fewer PCIe lanes than board and slot have.

    Silent where the slot has no more, for idle GeForce boards (some narrow their link at idle), and in virtual
    machines, whose bridges are made up.
    """
    if machine.host is not None and machine.host.virtual_machine:
        return
    for board in boards(machine):
        if board.pcie_width is None or board.pcie_width_max is None:
            continue
        most = min(board.pcie_width_max, board.pcie_slot_width or board.pcie_width_max)
        if board.pcie_width >= most or ("GeForce" in (board.name or "") and not busy(board)):
            continue
        yield Evidence(where=place(board), what="PCIe lanes", seen=f"x{board.pcie_width}", wanted=f"x{most}")


@rule(
    "PCI002",
    "slow-pcie-link",
    Severity.WARNING,
    why="host-to-device copies slow down in proportion, and one slow rank holds back all others",
    fix=Fix("set the slot's speed to automatic in the firmware setup; reseat the board or riser", safety="restarts"),
    confirm="nvidia-smi -q -d PCIE (under load)",
    source=f"{NVML}, nvmlDeviceGetCurrPcieLinkGeneration and nvmlDeviceGetMaxPcieLinkGeneration",
)
def slow_pcie_link(machine: Snapshot) -> Iterator[Evidence]:
    """Under load a board's link runs at a lower PCIe generation than board and slot can do together.

    Silent at idle, when every board lowers it.
    """
    for board in boards(machine):
        now, most = board.pcie_generation, board.pcie_generation_max
        if busy(board) and now is not None and most is not None and now < most:
            yield Evidence(where=place(board), what="PCIe generation under load", seen=str(now), wanted=str(most))


@rule(
    "PCI003",
    "pcie-replays",
    Severity.WARNING,
    why="packets are sent again: the link is marginal, slows down, and may fail",
    fix=Fix("reseat the board or riser; look at the kernel log for PCIe (AER) errors", "dmesg | grep -i aer"),
    confirm="nvidia-smi -q | grep -i replay (twice)",
    source=f"{NVML}, nvmlDeviceGetPcieReplayCounter",
)
def pcie_replays(machine: Snapshot) -> Iterator[Evidence]:
    """Replays went up while the probe watched, by more than one a second.

    Silent about the count over the board's life, which every change of speed adds to.
    """
    for board in boards(machine):
        if board.pcie_replays_per_s is not None and board.pcie_replays_per_s > REPLAYS_PER_S:
            yield Evidence(
                where=place(board),
                what="PCIe replays",
                seen=f"{board.pcie_replays_per_s:.0f} a second",
                wanted="none",
                confidence="likely",
            )


@rule(
    "PCI004",
    "acs-redirects-p2p",
    Severity.ERROR,
    why="peer copies go up to the root complex and back: they slow down, and NCCL can hang or lose data",
    fix=Fix(
        "switch ACS off in the firmware setup, or per bridge at boot: setpci -s BRIDGE ECAP_ACS+6.w=0",
        safety="needs root",
    ),
    confirm="lspci -vvv | grep -i acsctl",
    source="NVIDIA NCCL user guide, Troubleshooting, PCI Access Control Services",
)
def acs_redirects_p2p(machine: Snapshot) -> Iterator[Evidence]:
    """A PCI bridge above two GPUs or more redirects peer requests; or, in a paste of lspci, bridges do that may be so.

    Silent in virtual machines, where ACS must stay on, and for GPUs that NVLink joins: NCCL does not use PCIe there.
    """
    topology, host = machine.topology, machine.host
    if topology is None or (topology.pairs and all(_by_nvlink(pair) for pair in topology.pairs)):
        return
    nameless = [bridge for bridge in topology.acs_bridges or () if not bridge.gpus]
    if nameless and topology.pairs and not (host is not None and host.virtual_machine):
        # lspci does not tell which GPUs a bridge is above.
        seen = f"{len(nameless)} redirect peer requests"
        yield Evidence(what="ACS on PCI bridges", seen=seen, wanted="off above GPUs", confidence="likely")
    if host is None or host.virtual_machine is not False:
        return
    for bridge in topology.acs_bridges or ():
        if len(bridge.gpus) > 1:
            gpus = ", ".join(map(str, bridge.gpus))
            yield Evidence(
                where=bridge.bus_id, what=f"ACS above GPU {gpus}", seen="redirects peer requests", wanted="off"
            )


@rule(
    "PCI005",
    "iommu-translates",
    Severity.WARNING,
    why="peer copies through PCIe are translated: they slow down, and on some systems NCCL hangs",
    fix=Fix("add iommu=pt to the kernel's command line and reboot", safety="restarts"),
    confirm="cat /sys/kernel/iommu_groups/*/type | sort | uniq -c; cat /proc/cmdline",
    source="NVIDIA NCCL user guide, Troubleshooting, IO virtualization",
)
def iommu_translates(machine: Snapshot) -> Iterator[Evidence]:
    """The IOMMU translates the addresses of devices, on a machine whose GPUs talk over PCIe; or RCCL asks for iommu=pt.

    Silent with one GPU, with NVLink between all, and in virtual machines.
    """
    topology, host = machine.topology, machine.host
    if machine.nccl_log is not None and machine.nccl_log.wants_passthrough:
        yield Evidence(what="kernel command line", seen="no iommu=pt (RCCL's warning)", wanted="iommu=pt")
        return
    if topology is None or topology.iommu_mode != "translate" or host is None or host.virtual_machine is not False:
        return
    if len(used(machine)) > 1 and any(not _by_nvlink(pair) for pair in topology.pairs or ()):
        yield Evidence(what="IOMMU", seen="translates", wanted="off, or passthrough (iommu=pt)")


@rule(
    "NVL001",
    "nvlink-inactive",
    Severity.ERROR,
    why="the board reaches its peers over fewer links, or over PCIe, and every collective waits for it",
    fix=Fix(
        "reset the boards; if it stays, look at the bridge or baseboard", "nvidia-smi --gpu-reset", safety="needs root"
    ),
    confirm="nvidia-smi nvlink -s",
    source=f"{NVML}, nvmlDeviceGetNvLinkState; number of links by NVIDIA's data sheets",
    because=("DRV009", "GPU007"),
)
def nvlink_inactive(machine: Snapshot) -> Iterator[Evidence]:
    """Some NVLinks of a board are down while others are up, or fewer are up than on its peers of the same model.

    An info where a board shows all its links down: it may be sold without a bridge. Silent for one GPU of a virtual
    machine and with one board in all, which has nobody to link to.
    """
    links = machine.topology.nvlinks if machine.topology is not None else None
    if not links or len(boards(machine)) < 2:
        return
    up = {board.index: sum(bool(link.active) for link in _of(links, board.index)) for board in boards(machine)}
    for board in boards(machine):
        mine = _of(links, board.index)
        peers = [up[other.index] for other in boards(machine) if other.name == board.name]
        # By the data sheet where the model is known; links a board lacks by design show as down on some.
        known = table.find(board.name)
        most = max(peers, default=0)
        wanted = (
            min(known.nvlink_links, len(mine)) if known and known.nvlink == "board" and known.nvlink_links else most
        )
        if not mine or up[board.index] >= wanted:
            continue
        if up[board.index] == 0 and most == 0:
            if known is None or known.nvlink != "board":
                yield Evidence(
                    where=place(board),
                    what="NVLinks",
                    seen="all down",
                    wanted="up with a bridge",
                    severity=Severity.INFO,
                )
            continue
        yield Evidence(where=place(board), what="NVLinks up", seen=str(up[board.index]), wanted=str(max(wanted, most)))


def _of(links: tuple[NvLink, ...], gpu: int) -> list[NvLink]:
    return [link for link in links if link.gpu == gpu]


def _by_nvlink(pair: GpuPair) -> bool:
    return (pair.path or "").startswith("NV")


@rule(
    "NVL002",
    "nvlink-errors",
    Severity.WARNING,
    why="packets are sent again or a link had to be trained anew: it slows down, and may fail",
    fix=Fix(
        "watch the counters under load; if they go on, have the bridge or baseboard looked at", "nvidia-smi nvlink -e"
    ),
    confirm="nvidia-smi nvlink -e",
    source=f"{NVML}, nvmlDeviceGetNvLinkErrorCounter",
)
def nvlink_errors(machine: Snapshot) -> Iterator[Evidence]:
    """A link counts replay or recovery errors.

    Silent about CRC errors that were put right without a replay, which every link has now and then.
    """
    links = machine.topology.nvlinks if machine.topology is not None else None
    for link in links or ():
        counted = {"replay": link.replay_errors or 0, "recovery": link.recovery_errors or 0}
        told = ", ".join(f"{count} {kind}" for kind, count in counted.items() if count)
        if told:
            yield Evidence(where=f"GPU {link.gpu} link {link.link}", what="errors", seen=told, wanted="0")


@rule(
    "NVL003",
    "pcie-only",
    Severity.INFO,
    why="collectives between these GPUs run at PCIe speed: large gradients take longer than the backward pass",
    fix=Fix("nothing on boards without NVLink; large models gain from gradient accumulation or sharding"),
    confirm="nvidia-smi topo -m",
    source=f"{NVML}, nvmlDeviceGetTopologyCommonAncestor",
    because=("NVL001",),
)
def pcie_only(machine: Snapshot) -> Iterator[Evidence]:
    """Two GPUs or more, and no NVLink between any of those a job here will use."""
    pairs = _used_pairs(machine)
    if pairs and all(pair.path is not None and not _by_nvlink(pair) for pair in pairs):
        paths = ", ".join(sorted({pair.path for pair in pairs if pair.path}))
        yield Evidence(what="paths between GPUs", seen=paths, wanted="NVLink, for models with many parameters")


def _used_pairs(machine: Snapshot) -> list[GpuPair]:
    indices = {board.index for board in used(machine)}
    pairs = machine.topology.pairs if machine.topology is not None else None
    return [pair for pair in pairs or () if {pair.first, pair.second} <= indices]


@rule(
    "NVL004",
    "gpus-across-numa",
    Severity.WARNING,
    why="traffic between them crosses the link between processors, which all others share",
    fix=Fix("choose GPUs of one NUMA node where there are enough", "export CUDA_VISIBLE_DEVICES=INDICES"),
    confirm="nvidia-smi topo -m",
    source="nvidia-smi topo -m, legend: SYS",
    because=("NVL001",),
)
def gpus_across_numa(machine: Snapshot) -> Iterator[Evidence]:
    """A pair of the GPUs a job here will use is SYS apart: the path crosses the link between processors.

    Silent with NVLink between them, and an info where the job uses every GPU of the machine: there is no better choice.
    """
    pairs = [pair for pair in _used_pairs(machine) if pair.path == "SYS"]
    if not pairs:
        return
    named = ", ".join(f"{pair.first}–{pair.second}" for pair in pairs[:6])
    more = f" and {len(pairs) - 6} more" if len(pairs) > 6 else ""
    chosen = len(used(machine)) < len(boards(machine))
    yield Evidence(
        where=f"GPU {named}{more}",
        what="path",
        seen="SYS",
        wanted="NODE or nearer",
        severity=None if chosen else Severity.INFO,
    )


@rule(
    "NVL005",
    "wrong-numa-cpus",
    Severity.WARNING,
    why="every launch and copy crosses the link between processors",
    fix=Fix("bind the process to the CPUs near its GPU", "numactl --cpunodebind=NODE --membind=NODE …"),
    confirm="nvidia-smi topo -m; taskset -cp $$",
    source=f"{NVML}, nvmlDeviceGetCpuAffinity",
)
def wrong_numa_cpus(machine: Snapshot) -> Iterator[Evidence]:
    """The process may run on no CPU that is near any of the GPUs it will use.

    Silent where it may run on some near one of them: a launcher binds each rank later. Silent with one NUMA node.
    """
    cpu = machine.cpu
    if cpu is None or not cpu.affinity or cpu.numa_nodes is None or cpu.numa_nodes < 2:
        return
    near = [set(board.cpu_affinity) for board in used(machine) if board.cpu_affinity]
    if near and not any(set(cpu.affinity) & each for each in near):
        wanted = min(near, key=min)
        yield Evidence(
            what="CPUs of this process",
            seen=_range(set(cpu.affinity)),
            wanted=f"near its GPU: {_range(wanted)}",
        )


def _range(numbers: set[int]) -> str:
    """`0-15,32-47`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


@rule(
    "NVL006",
    "p2p-unavailable",
    Severity.WARNING,
    why="the boards have NVLink and may not use it: copies between them go through the host's memory",
    fix=Fix("look at the driver's registry keys and at the hypervisor's settings; see the status"),
    confirm="nvidia-smi topo -p2p rw",
    source=f"{NVML}, nvmlDeviceGetP2PStatus",
    because=("DRV009", "NVL001"),
)
def p2p_unavailable(machine: Snapshot) -> Iterator[Evidence]:
    """NVLink joins two boards and the driver refuses peer access between them."""
    for pair in _used_pairs(machine):
        if _by_nvlink(pair) and pair.peer_access is False:
            yield Evidence(
                where=f"GPU {pair.first}–{pair.second}",
                what="peer access",
                seen=pair.peer_status or "refused",
                wanted="ok",
            )


@rule(
    "NVL008",
    "peer-islands",
    Severity.INFO,
    why="a job that spans the groups copies through the host's memory between them",
    fix=Fix("keep a job within one group where it fits", "export CUDA_VISIBLE_DEVICES=INDICES"),
    confirm="nvidia-smi topo -p2p rw",
    source=f"{NVML}, nvmlDeviceGetP2PStatus",
    because=("NVL006",),
)
def peer_islands(machine: Snapshot) -> Iterator[Evidence]:
    """Some of the GPUs a job here will use have peer access to each other, and some pairs have not."""
    pairs = _used_pairs(machine)
    if not pairs or any(pair.peer_access is None for pair in pairs):
        return
    groups = _groups({board.index for board in used(machine)}, pairs)
    if 1 < len(groups) < len(used(machine)):
        seen = " | ".join(", ".join(map(str, sorted(group))) for group in groups)
        yield Evidence(what="peer access inside groups", seen=f"GPU {seen}", wanted="one group")


def _groups(indices: set[int], pairs: list[GpuPair]) -> list[set[int]]:
    """Sets of GPUs that peer access joins, directly or through others."""
    groups = [{index} for index in sorted(indices)]
    for pair in pairs:
        if pair.peer_access:
            joined = [group for group in groups if pair.first in group or pair.second in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return sorted(groups, key=min)


RULES: tuple[Rule[Snapshot], ...] = (
    narrow_pcie_link,
    slow_pcie_link,
    pcie_replays,
    acs_redirects_p2p,
    iommu_translates,
    nvlink_inactive,
    nvlink_errors,
    pcie_only,
    gpus_across_numa,
    wrong_numa_cpus,
    p2p_unavailable,
    peer_islands,
)
