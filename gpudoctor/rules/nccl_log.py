"""Rules on what NCCL's log and torch's watchdog say of a job."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.nccl_log import NcclLog, Timeout
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import trials
from gpudoctor.rules.launch import nodes
from gpudoctor.rules.shadows import same_version
from gpudoctor.snapshot import Snapshot

LATE_START = 2
"""A collective this early in a job is its first use of the links."""


def several_nodes(machine: Snapshot) -> bool:
    """The log shows a job of several nodes, or the launcher says so."""
    seen = machine.nccl_log.node_count if machine.nccl_log is not None else None
    return max(seen or 1, nodes(machine) or 1) > 1


@rule(
    "NCC011",
    "mixed-nccl",
    Severity.ERROR,
    why="ranks of different NCCL versions refuse each other, hang, or read each other's messages wrongly",
    fix=(
        Fix("install the same torch on every node: its wheel brings its own NCCL"),
        Fix(
            "where a node takes another NCCL, see LIB002: LD_LIBRARY_PATH or LD_PRELOAD there", "unset LD_LIBRARY_PATH"
        ),
    ),
    confirm='on each node: python -c "import torch; print(torch.cuda.nccl.version())"',
    source="NCCL 2.30.7, src/init.cc: Mismatched NCCL version detected",
)
def mixed_nccl(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL says that ranks have different versions, or the log shows different ones on different nodes.

    Likely in the latter case: two runs may stand in one text. Silent where only the CUDA they were built with differs.
    """
    log = machine.nccl_log
    if log is None:
        return
    if log.version_clash is not None:
        yield Evidence(what="NCCL", seen=log.version_clash, wanted="one version on all ranks")
        return
    places = list(log.versions.items())
    if any(not same_version(places[0][1], version) for _, version in places[1:]):
        yield Evidence(
            what="NCCL",
            seen=", ".join(f"{version} on {place}" for place, version in places[:8]),
            wanted="one version on all nodes",
            confidence="likely",
        )


@rule(
    "NCC013",
    "nvls-fails",
    Severity.ERROR,
    why="NCCL chose the switches' own reduction (NVLink SHARP), and fabric or container keep it from setting that up",
    fix=(
        Fix("do without it until the fabric is in order (slower all-reduce)", "export NCCL_NVLS_ENABLE=0", "slower"),
        Fix("restart the fabric manager with no job running, and reset the GPUs after it", safety="needs root"),
    ),
    confirm="NCCL_DEBUG=INFO NCCL_NVLS_ENABLE=0 torchrun …; nvidia-smi -q | grep -A 12 Fabric",
    source="NCCL 2.30.7, src/transport/nvls.cc; NVIDIA/nccl issues 1672 and 1788; Fabric Manager user guide",
    because=("DRV009", "DRV013"),
)
def nvls_fails(machine: Snapshot) -> Iterator[Evidence]:
    """A warning of NCCL's NVLS transport, in a log or at --deep: multicast memory could not be made, bound or shared.

    Silent where NVLS is merely not available, as on most machines.
    """
    log = machine.nccl_log
    if log is not None and log.nvls_error is not None:
        yield Evidence(what="NVLink SHARP", seen=log.nvls_error, wanted="multicast memory on every GPU")
    yield from trials.nvls_failures(machine)


@rule(
    "NCC015",
    "collective-timeout",
    Severity.ERROR,
    why="a rank did not come, or could not go on: all others wait until torch ends the job",
    fix=(
        Fix("look at the ranks that did not time out, or did so first: their own last lines tell what held them"),
        Fix("let torch record which rank issued what", "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"),
        Fix("where one rank does slow work alone (evaluation, checkpoint), pass a longer timeout=timedelta(hours=2)"),
    ),
    confirm="gpudoctor attach --all, while it hangs, shows where each rank stands",
    source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, watchdog; PyTorch tutorial, Flight Recorder",
    because=("NCC014", "NCC016", "NCC011", "NCC018", "GPU007", "GPU005", "ERR001"),
)
def collective_timeout(machine: Snapshot) -> Iterator[Evidence]:
    """The watchdog (or gloo, or a monitored barrier) says that a collective did not end in time, or one of --deep does
    not end.

    Silent where ranks are seen to wait in different collectives, which is NCC016's.
    """
    yield from trials.collective_hangs(machine)
    log = machine.nccl_log
    if log is None or not log.timeouts:
        return
    by_call: dict[tuple[int | None, str | None], list[Timeout]] = {}
    for item in log.timeouts:
        by_call.setdefault((item.sequence, item.operation), []).append(item)
    for (sequence, operation), items in list(by_call.items())[:4]:
        waited = next((item.timeout_ms for item in items if item.timeout_ms is not None), None)
        ranks = sorted({item.rank for item in items if item.rank is not None})
        call = " ".join(filter(None, (operation, f"number {sequence}" if sequence is not None else "")))
        yield Evidence(
            what=call or "collective",
            seen=(f"{_named(ranks)} waited" if ranks else "ranks waited")
            + (f" {waited / 1000:g} s" if waited is not None else "")
            + (f"; {_named(late)} did not come" if (late := _late(log, items)) else ""),
            wanted="all ranks in it",
        )


def _named(ranks: list[int]) -> str:
    names = ", ".join(str(rank) for rank in ranks[:8]) + (", …" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def _late(log: NcclLog, items: list[Timeout]) -> list[int]:
    """Ranks that had not issued it: others name them, or their own counters do."""
    behind = {
        item.rank
        for item in items
        if item.rank is not None
        and item.sequence is not None
        and item.last_enqueued is not None
        and item.last_enqueued < item.sequence
    }
    return sorted({*log.late_ranks, *behind})


@rule(
    "NCC016",
    "mismatched-collective",
    Severity.ERROR,
    why="ranks that call different collectives, or one with different sizes, wait for each other or mix up their data",
    fix=(
        Fix("look for code that only some ranks run (if rank == 0: …) or in another order, with a collective inside"),
        Fix("let torch compare every call", "export TORCH_DISTRIBUTED_DEBUG=DETAIL", safety="slower"),
        Fix("where the code is the same, compare NCCL's version and its variables on the nodes", "env | grep NCCL_"),
    ),
    confirm="TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun …",
    source="PyTorch documentation, torch.distributed, Debugging; NVIDIA/nccl issues 296, 969 and 1328",
    because=("NCC011",),
)
def mismatched_collective(machine: Snapshot) -> Iterator[Evidence]:
    """torch or NCCL says that ranks called different operations, or one with different sizes, or peers got messages of
    another size than they expected.

    Likely for messages: other NCCL variables on some ranks do the same. Silent for ranks that wait in one collective.
    """
    for item in machine.nccl_log.mismatches if machine.nccl_log is not None else ():
        yield Evidence(
            what="collective",
            seen=item.seen,
            wanted="the same on all ranks",
            confidence="certain" if item.certain else "likely",
        )


@rule(
    "NCC017",
    "p2p-hang",
    Severity.ERROR,
    why="the driver promises peer access that the PCIe fabric does not keep, so the first transfer never arrives",
    fix=(
        Fix("see whether it runs without peer access", "export NCCL_P2P_DISABLE=1", safety="slower"),
        Fix("then let peer traffic pass: turn ACS off on the bridges and set iommu=pt (or off)", safety="needs root"),
    ),
    confirm="NCCL_P2P_DISABLE=1 torchrun …; p2pBandwidthLatencyTest of the CUDA samples",
    source="NVIDIA NCCL user guide, Troubleshooting, GPU Direct and PCI Access Control Services",
    because=("PCI004", "PCI005"),
)
def p2p_hang(machine: Snapshot) -> Iterator[Evidence]:
    """Ranks are joined by peer access over PCIe alone, and one of the job's first collectives never ends; or a copy
    between two GPUs at --deep does not.

    Silent with NVLink between the GPUs, for jobs that ran a while, and where ranks were late or called different
    collectives. Likely: the log does not show the copy itself.
    """
    yield from trials.peer_hangs(machine)
    log = machine.nccl_log
    if log is None or not log.channels.get("P2P") or not log.timeouts or log.mismatches or log.late_ranks:
        return
    pairs = (machine.topology.pairs if machine.topology is not None else None) or ()
    if any((pair.path or "").startswith("NV") for pair in pairs) or (log.node_count or 1) > 1 or log.nvls:
        return
    if all(item.sequence is not None and item.sequence <= LATE_START for item in log.timeouts):
        yield Evidence(
            what="first collective over peer access",
            seen=f"{log.channels['P2P']} P2P channels, and it never ends",
            wanted="it ends in milliseconds",
            confidence="likely",
        )


def duplicates(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL's own words, for NCC014."""
    for item in machine.nccl_log.duplicates if machine.nccl_log is not None else ():
        yield Evidence(
            where=f"ranks {' and '.join(str(rank) for rank in item.ranks)}",
            what=f"CUDA device {item.device}" if item.device else "CUDA device",
            seen="two ranks on it",
            wanted="one rank a device",
            fix=(Fix("give each rank its own device before the first CUDA call", _SET_DEVICE),),
        )


_SET_DEVICE = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'


def loopback(machine: Snapshot) -> Iterator[Evidence]:
    """For NCC018: NCCL chose loopback although ranks of other nodes are to come."""
    log = machine.nccl_log
    if log is None or not several_nodes(machine) or not log.bootstrap_interfaces:
        return
    if all(name.startswith("lo") and name[2:].isdigit() | (name == "lo") for name in log.bootstrap_interfaces):
        yield Evidence(
            where=", ".join(log.bootstrap_interfaces),
            what="interface NCCL meets over",
            seen=f"loopback, with {log.node_count} nodes" if (log.node_count or 1) > 1 else "loopback",
            wanted="an interface that leads to the other nodes",
            fix=(Fix("name it", "export NCCL_SOCKET_IFNAME=eth0"),),
        )


def without_rdma(machine: Snapshot) -> Iterator[Evidence]:
    """For NCC012: no RDMA device, data over sockets, and several nodes. On one node that is normal."""
    log = machine.nccl_log
    if log is None or log.ib_devices != () or log.network != "Socket" or not several_nodes(machine):
        return
    yield Evidence(
        what="network between nodes",
        seen=f"sockets over {', '.join(log.socket_interfaces) or 'TCP'}: NCCL found no RDMA device",
        wanted="InfiniBand, RoCE or EFA",
        confidence="likely",
    )


RULES: tuple[Rule[Snapshot], ...] = (
    mixed_nccl,
    nvls_fails,
    collective_timeout,
    mismatched_collective,
    p2p_hang,
)
