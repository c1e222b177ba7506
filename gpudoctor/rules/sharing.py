"""Rules on who holds memory on which GPU: one full and the others not, strangers' contexts, two ranks on one."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from gpudoctor.facts.run import Rank
from gpudoctor.facts.watch import WatchedGpu
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import on_gpu, on_gpus
from gpudoctor.rules.sizes import GIB, MIB, size
from gpudoctor.run import Run

IMBALANCE, LEAST_IMBALANCE = 1.25, GIB
STRAY = 64 * MIB  # a bare context takes several hundred
SET_DEVICE = Fix(
    "choose the device before anything touches CUDA", "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"
)
MAP_LOCATION = Fix("load checkpoints to the host first", "torch.load(path, map_location='cpu')")


def _held(board: WatchedGpu) -> int:
    """By the job; peer contexts hold nothing."""
    return sum(holder.peak_bytes or 0 for holder in board.holders)


def _used(run: Run) -> list[WatchedGpu]:
    return [board for board in (run.watch.gpus if run.watch else ()) if _held(board)]


def _homes(run: Run) -> dict[int, int]:
    """Rank → NVML index of the GPU it holds most memory on."""
    most: dict[int, tuple[int, int]] = {}
    for board in _used(run):
        by_rank: dict[int, int] = defaultdict(int)
        for holder in board.holders:
            if holder.rank is not None:
                by_rank[holder.rank] += holder.peak_bytes or 0
        for rank, held in by_rank.items():
            most[rank] = max(most.get(rank, (0, -1)), (held, board.index))
    return {rank: index for rank, (held, index) in most.items() if held}


@rule(
    "MEM001",
    "gpu0-memory-imbalance",
    Severity.WARNING,
    why="the fullest GPU sets the batch of all of them",
    fix=(SET_DEVICE, MAP_LOCATION),
    confirm="nvidia-smi",
    source="PyTorch documentation, torch.load, map_location; 1.25 times the median is our bound",
    because=("MEM002", "MEM003"),
)
def gpu0_memory_imbalance(run: Run) -> Iterator[Evidence]:
    """The job holds on its first GPU more than 1.25 times the median of its others, and 1 GiB more.

    Silent where several of its ranks live there (MEM007).
    """
    boards = _used(run)
    homes = list(_homes(run).values())
    if len(boards) < 2 or homes.count(boards[0].index) > 1:
        return
    first, others = _held(boards[0]), statistics.median(_held(board) for board in boards[1:])
    if first > IMBALANCE * others and first - others >= LEAST_IMBALANCE:
        yield Evidence(
            where=f"GPU {boards[0].index}",
            what="memory of the job",
            seen=f"{size(first)}, {first / others:.2f} × the median of the others",
            wanted=f"{size(int(others))}, as on the others",
        )


@rule(
    "MEM002",
    "stray-context",
    Severity.WARNING,
    why="each process that touches a GPU holds a context there: hundreds of MiB for nothing",
    fix=(SET_DEVICE, MAP_LOCATION),
    confirm="nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv",
    source="PyTorch documentation, torch.cuda.set_device and torch.load, map_location",
)
def stray_context(run: Run) -> Iterator[Evidence]:
    """A rank holds memory on a GPU that is another rank's.

    Peer contexts of 0 MiB are harmless. Silent for a rank that spreads its model over GPUs which are no other rank's,
    and where both ranks live there (MEM007).
    """
    homes = _homes(run)
    for board in _used(run):
        owners = {rank for rank, index in homes.items() if index == board.index}
        strays = {
            holder.rank: holder.peak_bytes or 0
            for holder in board.holders
            if holder.rank in homes and holder.rank not in owners and (holder.peak_bytes or 0) >= STRAY
        }
        if owners and strays:
            yield Evidence(
                where=f"GPU {board.index}",
                what=f"memory of others than rank {', '.join(map(str, sorted(owners)))}",
                seen=", ".join(f"rank {rank}: {size(held)}" for rank, held in strays.items()),
                wanted="none",
            )


@rule(
    "MEM003",
    "data-parallel",
    Severity.WARNING,
    why="one process launches for all GPUs, copies the model to them at each step and gathers outputs on the first",
    fix=Fix("use one process a GPU and DistributedDataParallel", "torchrun --nproc-per-node gpu train.py"),
    confirm="grep -rn DataParallel . ; nvidia-smi",
    source="PyTorch documentation, torch.nn.DataParallel: DistributedDataParallel is recommended even on one node",
)
def data_parallel(run: Run) -> Iterator[Evidence]:
    """nn.DataParallel is in use on several GPUs, or (without the agent's record) one process holds all.

    Silent on one GPU or none, where it does nothing, and for a model spread over GPUs by hand.
    """
    jobs = [rank.job for rank in run.ranks if rank.job]
    boards = _used(run)
    pids = {holder.pid for board in boards for holder in board.holders if holder.peak_bytes}
    if any(job.parallel is not None and job.parallel.kind == "data_parallel" for job in jobs):
        if len(boards) > 1 or (not boards and on_gpus(run) and run.machine.gpu_count() != 1):
            yield Evidence(what="model", seen="nn.DataParallel", wanted="DistributedDataParallel")
    elif not jobs and len(boards) > 1 and len(pids) == 1:
        yield Evidence(
            what="processes",
            seen=f"one on {len(boards)} GPUs",
            wanted="one a GPU",
            confidence="likely",
        )


@rule(
    "MEM007",
    "shared-gpu",
    Severity.WARNING,
    why="two ranks on one GPU take turns: neither memory nor speed is gained, and NCCL refuses it",
    fix=(SET_DEVICE, Fix("start no more ranks than there are GPUs", "torchrun --nproc-per-node gpu train.py")),
    confirm="nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv",
    source="NCCL user guide, Creating a Communicator: using the same CUDA device for several ranks is not supported",
)
def shared_gpu(run: Run) -> Iterator[Evidence]:
    """Two ranks of the job have their memory on one GPU; from traces alone: gloo ranks with the same device number.

    Silent on boards in MIG mode, and for NCCL jobs where only the device's number in the process is known: a launcher
    may show each rank a GPU of its own as number 0.
    """
    homes = _homes(run)
    sliced = {board.index for board in (run.machine.gpus.boards if run.machine.gpus else ()) if board.mig_mode}
    if homes:
        for index in sorted(set(homes.values()) - sliced):
            together = sorted(rank for rank, home in homes.items() if home == index)
            if len(together) > 1:
                yield _together(f"GPU {index}", together, "certain")
        return
    by_device: dict[tuple[str | None, int], list[Rank]] = defaultdict(list)
    for rank in run.ranks:
        if on_gpu(rank) and rank.device_index is not None and rank.backend == "gloo":
            by_device[rank.host, rank.device_index].append(rank)
    for (_, number), ranks in by_device.items():
        if len(ranks) > 1 and len({rank.pid for rank in ranks}) == len(ranks) and not sliced:
            yield _together(f"device {number}", [rank.rank for rank in ranks], "likely")


def _together(where: str, ranks: list[int], confidence: str) -> Evidence:
    return Evidence(
        where=where,
        what="ranks on it",
        seen=", ".join(map(str, ranks)),
        wanted="one",
        confidence="certain" if confidence == "certain" else "likely",
    )


RULES: tuple[Rule[Run], ...] = (gpu0_memory_imbalance, stray_context, data_parallel, shared_gpu)
