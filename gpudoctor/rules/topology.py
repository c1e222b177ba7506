"""Rules on links between boards: NVLink, peer access, and where boards and processes sit in the machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.topology import GpuPair, NvLink
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import pcie
from gpudoctor.rules.boards import boards, linked, place, used, used_pairs
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import gpus as table

NVML = "NVML API reference"
LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""How launchers tell a process which of the host's GPUs is its own."""


@rule(
    "NVL001",
    "nvlink-inactive",
    Severity.ERROR,
    why="the board reaches its peers over fewer links, or over PCIe, and every collective waits for it",
    fix=Fix(
        "drain the node and reset its boards; if it stays, look at the bridge or baseboard",
        "sudo nvidia-smi --gpu-reset",
        safety="destructive",
    ),
    confirm="nvidia-smi nvlink -s",
    source=f"{NVML}, nvmlDeviceGetNvLinkState; number of links by NVIDIA's data sheets",
    because=("DRV009",),
)
def nvlink_inactive(machine: Snapshot) -> Iterator[Evidence]:
    """Fewer NVLinks of a board are up than its model always has, or than are up on its peers of the same model (likely,
    where links are on a bridge).

    An info where a board shows all its links down, and none of its model has any up: it may be sold without a bridge.
    Silent with one board, which has nobody to link to, under MIG, which does without, and in virtual machines about
    links that no board there has up: they lead to boards of others.
    """
    links = (machine.topology.nvlinks if machine.topology is not None else None) or ()
    known = [board for board in boards(machine) if not board.lost and any(link.gpu == board.index for link in links)]
    if len(known) < 2:
        return
    up = {board.index: sum(bool(link.active) for link in links if link.gpu == board.index) for board in known}
    down: list[Gpu] = []
    for board in known:
        most = max(up[other.index] for other in known if other.name == board.name)
        wired = _wired(board, links) if not _virtual(machine) else None
        if board.mig_mode or up[board.index] >= max(most, wired or 0):
            if not board.mig_mode and most == 0 and _wired(board, links) is None:
                down.append(board)
            continue
        yield Evidence(
            where=place(board),
            what="NVLinks up",
            seen=str(up[board.index]),
            wanted=str(max(most, wired or 0)),
            confidence="certain" if wired is not None else "likely",
        )
    if down:
        where = f"GPU {', '.join(str(board.index) for board in down)}"
        yield Evidence(where=where, what="NVLinks", seen="all down", wanted="up, with a bridge", severity=Severity.INFO)


def _wired(board: Gpu, links: tuple[NvLink, ...]) -> int | None:
    """Links that every board of this model has up, as far as the driver lists them; None where it hangs on a bridge."""
    row = table.find(board.name)
    if row is None or row.nvlink != "board" or row.nvlink_links is None:
        return None
    return min(row.nvlink_links, sum(link.gpu == board.index for link in links))


def _virtual(machine: Snapshot) -> bool:
    return machine.host is None or machine.host.virtual_machine is not False


@rule(
    "NVL002",
    "nvlink-errors",
    Severity.WARNING,
    why="packets are sent again or a link had to be trained anew: it slows down, and may fail",
    fix=Fix(
        "watch the counters under load; if they go on, have the bridge or baseboard looked at", "nvidia-smi nvlink -e"
    ),
    confirm="nvidia-smi nvlink -e",
    source=f"{NVML}, nvmlDeviceGetNvLinkErrorCounter; DCGM's health check counts each replay and recovery as a failure",
)
def nvlink_errors(machine: Snapshot) -> Iterator[Evidence]:
    """Links of a board count replay or recovery errors.

    Silent about CRC errors that were put right without a replay, which every link has now and then.
    """
    links = (machine.topology.nvlinks if machine.topology is not None else None) or ()
    for gpu in sorted({link.gpu for link in links}):
        told = [text for link in links if link.gpu == gpu and (text := _errors(link))]
        if told:
            more = f" and {len(told) - 4} more" if len(told) > 4 else ""
            yield Evidence(where=f"GPU {gpu}", what="NVLink errors", seen="; ".join(told[:4]) + more, wanted="0")


def _errors(link: NvLink) -> str:
    """`link 3: 12 replay, 1 recovery`; empty without any."""
    counted = {"replay": link.replay_errors or 0, "recovery": link.recovery_errors or 0}
    told = ", ".join(f"{count} {kind}" for kind, count in counted.items() if count)
    return f"link {link.link}: {told}" if told else ""


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
    """Two GPUs or more, and no NVLink between any of those a job here will use.

    Silent where a path is not known.
    """
    pairs = used_pairs(machine)
    if pairs and all(pair.path is not None and not linked(pair) for pair in pairs):
        paths = ", ".join(sorted({pair.path for pair in pairs if pair.path}))
        yield Evidence(what="paths between GPUs", seen=paths, wanted="NVLink, for models with many parameters")


@rule(
    "NVL004",
    "gpus-across-numa",
    Severity.WARNING,
    why="traffic between them crosses the link between processors, which all others share",
    fix=Fix("choose GPUs of one NUMA node in CUDA_VISIBLE_DEVICES, where there are enough", "nvidia-smi topo -m"),
    confirm="nvidia-smi topo -m",
    source="nvidia-smi topo -m, legend: SYS",
    because=("NVL001",),
)
def gpus_across_numa(machine: Snapshot) -> Iterator[Evidence]:
    """A pair of the GPUs a job here will use is SYS apart: the path crosses the link between processors.

    Silent with NVLink between them, and on a machine of one NUMA node; in a virtual machine, which may show another
    topology than it has, it is likely.
    """
    if machine.cpu is not None and machine.cpu.numa_nodes == 1:
        return
    pairs = [pair for pair in used_pairs(machine) if pair.path == "SYS" and not linked(pair)]
    if pairs:
        named = ", ".join(f"{pair.first}–{pair.second}" for pair in pairs[:6])
        more = f" and {len(pairs) - 6} more" if len(pairs) > 6 else ""
        virtual = machine.host is not None and machine.host.virtual_machine
        yield Evidence(
            where=f"GPU {named}{more}",
            what="path",
            seen="SYS",
            wanted="NODE or nearer",
            confidence="likely" if virtual else "certain",
        )


@rule(
    "NVL005",
    "wrong-numa-cpus",
    Severity.WARNING,
    why="every launch and copy crosses the link between processors",
    fix=Fix("bind the process to the CPUs near its GPU (numactl --cpunodebind, or the launcher's own option)"),
    confirm="nvidia-smi topo -m; taskset -cp $$",
    source=f"{NVML}, nvmlDeviceGetCpuAffinity",
)
def wrong_numa_cpus(machine: Snapshot) -> Iterator[Evidence]:
    """The process may run on no CPU near its GPU: the one of its local rank, or else any of those it will use.

    Silent where it may run on some near one of several: a launcher binds each rank later. Silent with one NUMA node.
    """
    cpu = machine.cpu
    if cpu is None or not cpu.affinity or cpu.numa_nodes is None or cpu.numa_nodes < 2:
        return
    own = [board for board in _own(machine) if board.cpu_affinity]
    if own and not any(set(cpu.affinity) & set(board.cpu_affinity or ()) for board in own):
        yield Evidence(
            where=place(own[0]) if len(own) == 1 else "",
            what="CPUs of this process",
            seen=_range(set(cpu.affinity)),
            wanted=f"near GPU {own[0].index}: {_range(set(own[0].cpu_affinity or ()))}",
        )


def _own(machine: Snapshot) -> tuple[Gpu, ...]:
    """The board of this process' local rank; all it may use where no launcher has numbered it."""
    seen, environment = used(machine), machine.environment
    ranks = [environment.number(name) for name in LOCAL_RANK] if environment is not None else []
    rank = next((number for number in ranks if number is not None), None)
    return seen[rank : rank + 1] if rank is not None and len(seen) > 1 and rank >= 0 else seen


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
    confirm="nvidia-smi topo -p2p r; nvidia-smi topo -p2p w",
    source=f"{NVML}, nvmlDeviceGetP2PStatus",
    because=("DRV009", "NVL001"),
)
def p2p_unavailable(machine: Snapshot) -> Iterator[Evidence]:
    """NVLink joins two boards and the driver refuses peer access between them.

    Silent where one of them is in MIG mode, which has no peer access.
    """
    sliced = {board.index for board in boards(machine) if board.mig_mode}
    refused = [pair for pair in used_pairs(machine) if linked(pair) and pair.peer_access is False]
    for pair in refused:
        if not sliced & {pair.first, pair.second}:
            status = (pair.peer_status or "refused").replace("_", " ")
            yield Evidence(where=f"GPU {pair.first}–{pair.second}", what="peer access", seen=status, wanted="ok")


@rule(
    "NVL008",
    "peer-islands",
    Severity.INFO,
    why="a job that spans the groups copies through the host's memory between them",
    fix=Fix("keep a job within one group where it fits: name its GPUs in CUDA_VISIBLE_DEVICES"),
    confirm="nvidia-smi topo -p2p r; nvidia-smi topo -p2p w",
    source=f"{NVML}, nvmlDeviceGetP2PStatus",
    because=("NVL006",),
)
def peer_islands(machine: Snapshot) -> Iterator[Evidence]:
    """Some of the GPUs a job here will use have peer access to each other, and some pairs have not.

    Silent where none has any, and where a pair is not known.
    """
    pairs = used_pairs(machine)
    if not pairs or any(pair.peer_access is None for pair in pairs):
        return
    indices = {index for pair in pairs for index in (pair.first, pair.second)}
    groups = _groups(indices, pairs)
    if 1 < len(groups) < len(indices):
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
    *pcie.RULES,
    nvlink_inactive,
    nvlink_errors,
    pcie_only,
    gpus_across_numa,
    wrong_numa_cpus,
    p2p_unavailable,
    peer_islands,
)
