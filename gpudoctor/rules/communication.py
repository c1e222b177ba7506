"""Rules on communication between ranks: how much of it shows, and over which link it goes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from gpudoctor.facts.run import Link, Rank
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import ranks
from gpudoctor.rules.losses import Loss, cpu_wait_share, lost, on_gpu, on_gpus, per_step_ms
from gpudoctor.run import Run
from gpudoctor.tables import gpus

EXPOSED, EXPOSED_BADLY = 0.10, 0.30
GLOO_SHARE = 0.02
# A ring reaches 80 % of a link with a gigabyte, and a tenth of that with DDP's buckets beside compute; links that are
# switched off leave 2 to 5 %.
LEAST_OF_LINK = 0.05
LEAST_OF_OTHERS = 0.67
LINK_SHARE = 0.05
LESS_OFTEN = Fix("exchange less often: a larger batch a rank, or gradient accumulation under model.no_sync()")
DDP_NOTE = "PyTorch documentation, DistributedDataParallel; PyTorch DDP paper (VLDB 2020), section 3"


@rule(
    "COM001",
    "exposed-communication",
    Severity.WARNING,
    why="the GPUs compute nothing while they exchange gradients or parameters, and more GPUs make it worse",
    fix=(
        Fix(
            "halve the bytes: reduce gradients in bfloat16",
            "model.register_comm_hook(None, "
            "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)",
        ),
        LESS_OFTEN,
    ),
    confirm="NCCL_DEBUG=INFO shows the transport; nccl-tests' all_reduce_perf the bandwidth there should be",
    source=f"{DDP_NOTE}; 10 % and 30 % of the step are our bounds",
)
def exposed_communication(run: Run) -> Iterator[Evidence]:
    """At least 10 % of the step (an error from 30 %) is communication that no compute hides.

    Waiting for a rank that another finding names (COM002, COM009, COM010) does not count: it is no transfer. Nor does
    what a rank that waits for a CPU makes the others wait.
    """
    waits = _waits_for_a_named_rank(run)

    def share(rank: Rank) -> float | None:
        others = max((cpu_wait_share(other) for other in run.ranks if other is not rank), default=0.0)
        exposed = _exposed(rank, waits.get(rank.rank, 0.0))
        return None if exposed is None else max(0.0, exposed - others)

    loss = lost(run.ranks, share, EXPOSED)
    if loss is None:
        return
    rank = loss.ranks[0]
    severity = Severity.ERROR if loss.share >= EXPOSED_BADLY else Severity.WARNING
    whole, hidden = rank.communication_ns or 0, rank.hidden_communication_ns or 0
    transfer = per_step_ms(rank, whole) - waits.get(rank.rank, 0.0)
    yield Evidence(
        where=loss.where,
        what="communication that no compute hides",
        seen=loss.seen + (f"; {hidden / whole:.0%} of all communication is hidden" if whole else ""),
        wanted=f"below {EXPOSED:.0%}",
        severity=severity,
        confidence=loss.confidence,
        # All hidden, a step still takes as long as its transfers.
        cost=loss.cost(transfer if rank.steps else 0.0),
        fix=() if on_gpu(rank) else (LESS_OFTEN,),
    )


def _exposed(rank: Rank, waits_ms: float) -> float | None:
    if rank.shares is None:
        return None
    return max(0.0, rank.shares.communication - (waits_ms / rank.step_ms if rank.step_ms else 0.0))


def _waits_for_a_named_rank(run: Run) -> dict[int, float]:
    """Rank → milliseconds a step it waits, where one rank is to blame."""
    if not ranks.named_late(run):
        return {}
    return {arrival.rank: arrival.exposed_wait_ms for arrival in run.arrivals}


@rule(
    "COM003",
    "slow-link",
    Severity.WARNING,
    why="every exchange takes as long as its slowest link",
    fix=(
        Fix("see whether the GPUs talk over NVLink and the hosts over RDMA: run `gpudoctor check` on each host"),
        Fix("see which transport NCCL takes: lines with `via`", "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH"),
    ),
    confirm="nvidia-smi topo -m; nvidia-smi nvlink -s; all_reduce_perf -b 8 -e 1G -f 2 of nccl-tests",
    source="nccl-tests, doc/PERFORMANCE.md; 5 % of the link and two thirds of other groups are our bounds",
)
def slow_link(run: Run) -> Iterator[Evidence]:
    """A group's large transfers run below 5 % of its GPUs' NVLink, or below two thirds of the groups alike.

    Waiting for late ranks is no part of a transfer. Silent for transfers that are small or of unknown size, across
    hosts (unless other groups show what is possible), for boards that may have no NVLink, and below 5 % of the step.
    """
    for link in run.links:
        share = link.transfer_ms / run.step_ms if run.step_ms else 0.0
        if link.bus_bandwidth_gb_s is None or not link.large_count or share < LINK_SHARE:
            continue
        figure = _figure(run, link)
        if figure is None or link.bus_bandwidth_gb_s >= figure[0]:
            continue
        least, wanted, source = figure
        members = tuple(rank for rank in run.ranks if rank.rank in link.ranks)
        exposed = min((rank.shares.communication for rank in members if rank.shares), default=share)
        loss = Loss(members, min(exposed, share * (1 - link.bus_bandwidth_gb_s / least)), "")
        yield Evidence(
            where=f"ranks {_few(link.ranks)}",
            what=f"bus bandwidth of {link.name}",
            seen=f"{link.bus_bandwidth_gb_s:.3g} GB/s in {link.large_count} transfers of 4 MiB or more",
            wanted=wanted,
            source=source,
            cost=loss.cost(),
        )


def _figure(run: Run, link: Link) -> tuple[float, str, str] | None:
    """Least bus bandwidth to be content with, in words, and whence."""
    alike = [
        other.bus_bandwidth_gb_s
        for other in run.links
        if other is not link
        and other.name == link.name
        and len(other.ranks) == len(link.ranks)
        and other.large_count
        and other.bus_bandwidth_gb_s
    ]
    if len(alike) > 1 and (usual := statistics.median(alike)) * LEAST_OF_OTHERS > (link.bus_bandwidth_gb_s or 0.0):
        return usual * LEAST_OF_OTHERS, f"{usual:.3g} GB/s, as {len(alike)} groups alike", "measured here"
    members = [rank for rank in run.ranks if rank.rank in link.ranks]
    boards = {rank.device or "" for rank in members if on_gpu(rank)}
    one_host = len(link.ranks) <= 8 and len({rank.host for rank in members}) == 1
    board = gpus.find(next(iter(boards))) if len(boards) == 1 and one_host else None
    if board is None or board.nvlink != "board" or not board.nvlink_gb_s or len(members) < 2:
        return None
    one_way = board.nvlink_gb_s / 2
    wanted = f"above {one_way * LEAST_OF_LINK:.3g} GB/s; NVLink moves {one_way:g} GB/s one way"
    return one_way * LEAST_OF_LINK, wanted, board.source


def _few(numbers: tuple[int, ...]) -> str:
    consecutive = numbers == tuple(range(numbers[0], numbers[-1] + 1)) if numbers else False
    if consecutive and len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")


@rule(
    "COM008",
    "gloo-for-gpu-tensors",
    Severity.WARNING,
    why="gloo copies each gradient to the host, reduces it on the CPU and copies it back, over sockets",
    fix=Fix("exchange over NVLink or PCIe", 'torch.distributed.init_process_group(backend="nccl")'),
    confirm="print(torch.distributed.get_backend())",
    source="PyTorch documentation, Distributed communication package, Which backend to use",
)
def gloo_for_gpu_tensors(run: Run) -> Iterator[Evidence]:
    """The job trains on GPUs, its default process group is gloo, and that takes at least 2 % of the step.

    Silent on CPU jobs, where gloo is right, and where a gloo group beside NCCL carries only numbers of the host.
    """

    def share(rank: Rank) -> float | None:
        backend = (rank.job.parallel.backend if rank.job and rank.job.parallel else None) or rank.backend
        if rank.shares is None or backend != "gloo" or (rank.world_size or 2) < 2:
            return 0.0
        by_gloo = any(series.backend == "gloo" and series.step for series in rank.collectives)
        by_other = any(series.backend != "gloo" and series.step for series in rank.collectives)
        return rank.shares.communication if by_gloo and not by_other else 0.0

    loss = lost(on_gpus(run), share, GLOO_SHARE)
    if loss is None:
        return
    yield Evidence(
        where=loss.where,
        what="backend",
        seen=f"gloo; communication takes {loss.seen}",
        wanted="nccl, with one GPU a rank",
        confidence=loss.confidence,
        cost=loss.cost(),
    )


RULES: tuple[Rule[Run], ...] = (exposed_communication, slow_link, gloo_for_gpu_tensors)
