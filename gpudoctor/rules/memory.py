"""Rules on the memory of each rank's device: too little, too much, or given back and asked for again."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.job import MemoryUse, ParallelSetup
from gpudoctor.facts.run import Rank
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import lost, ms, named, on_gpus, per_step_ms, share_of_window
from gpudoctor.rules.sizes import size
from gpudoctor.run import Run

FULL = 0.95
CACHE_TIGHT = 0.85
SPARE = 0.50
FITS = 0.40  # of a GPU: the other half and more is for activations
GATHERS = 0.10
STATE_SHARE = 0.50
RETRIES_A_STEP = 0.01
CALLS_A_STEP = 0.5
ALLOCATOR_SHARE = 0.02
CUDA_NOTES = "PyTorch documentation, CUDA semantics, Memory management"


def _memories(run: Run) -> list[tuple[Rank, MemoryUse]]:
    return [(rank, rank.job.memory) for rank in run.ranks if rank.job and rank.job.memory]


def _filled(memory: MemoryUse) -> float | None:
    """Share of the device that the tensors took at their peak; of the cache where only that is known."""
    peak = memory.allocated_peak_bytes if memory.allocated_peak_bytes is not None else memory.reserved_peak_bytes
    return peak / memory.total_bytes if peak is not None and memory.total_bytes else None


def _cached(memory: MemoryUse) -> float:
    return (memory.reserved_peak_bytes or 0) / memory.total_bytes if memory.total_bytes else 0.0


@rule(
    "MEM004",
    "allocator-retries",
    Severity.WARNING,
    why="at each retry the allocator waits for the device, gives all cached blocks back and asks for them again",
    fix=(
        Fix("let segments grow instead of splitting them", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        Fix("take a smaller batch, or checkpoint activations"),
    ),
    confirm="print(torch.cuda.memory_stats()['num_alloc_retries'])",
    source=f"{CUDA_NOTES}; one in 100 steps is our bound",
    because=("MEM010",),
)
def allocator_retries(run: Run) -> Iterator[Evidence]:
    """The allocator had to empty its cache and try again, at least once in 100 steps.

    Rarer ones, as in the first steps of a job, are an info.
    """
    for rank, memory in _memories(run):
        if not memory.retries:
            continue
        steps = rank.job.steps_seen if rank.job else 0
        often = memory.retries > 1 and memory.retries >= RETRIES_A_STEP * steps
        yield Evidence(
            where=_place(run, rank),
            what="cudaMalloc retries",
            seen=f"{memory.retries} in {steps} steps",
            wanted="0",
            severity=Severity.WARNING if often else Severity.INFO,
        )


def _place(run: Run, rank: Rank) -> str:
    return named([rank], len(run.ranks))


@rule(
    "MEM005",
    "little-headroom",
    Severity.WARNING,
    why="the next longer sequence, a fragment or a library's workspace ends the job with an out-of-memory error",
    fix=(
        Fix("take a smaller batch, or checkpoint activations (torch.utils.checkpoint)"),
        Fix("let segments grow instead of splitting them", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ),
    confirm="print(torch.cuda.max_memory_allocated() / torch.cuda.get_device_properties(0).total_memory)",
    source=f"{CUDA_NOTES}; 95 % is our bound",
    because=("MEM010",),
)
def little_headroom(run: Run) -> Iterator[Evidence]:
    """The job's peak is above 95 % of the device's memory.

    Silent where only the allocator's cache is that large and its tensors need less than 85 %: it gives that back.
    """
    for rank, memory in _memories(run):
        if not _tight(memory):
            continue
        cached = f", {_cached(memory):.1%} with the allocator's cache" if _cached(memory) else ""
        yield Evidence(
            where=_place(run, rank),
            what="peak memory",
            seen=f"{_filled(memory) or 0.0:.1%} of {size(memory.total_bytes or 0)}{cached}",
            wanted=f"below {FULL:.0%}",
        )


def _tight(memory: MemoryUse) -> bool:
    filled = _filled(memory)
    return filled is not None and (filled > FULL or (_cached(memory) > FULL and filled > CACHE_TIGHT))


@rule(
    "MEM006",
    "empty-cache-in-loop",
    Severity.WARNING,
    why="memory goes back to the driver and is asked for again at the next step, and cudaFree waits for the device",
    fix=Fix("take torch.cuda.empty_cache() out of the loop: the allocator reuses its blocks by itself"),
    confirm="grep -rn empty_cache . ; cudaMalloc and cudaFree in the trace",
    source=f"{CUDA_NOTES}; 2 % of the step is our bound",
)
def empty_cache_in_loop(run: Run) -> Iterator[Evidence]:
    """Memory is given back to the driver and asked for again about once a step; an info below 2 % of the step.

    Silent where only one of the two happens (a job that still grows), and where the agent saw no call of
    torch.cuda.empty_cache() (the allocator's own retries: MEM004).
    """

    def share(rank: Rank) -> float | None:
        return share_of_window(rank, _allocator_ns(rank)) if _gives_back(rank) else 0.0

    loss = lost(on_gpus(run), share, 1e-9)
    if loss is None:
        return
    rank = loss.ranks[0]
    calls = rank.allocations
    if calls is None or rank.shares is None:
        return
    # What the device idles is lost; the rest of the calls runs beside it.
    idle = lost([rank], lambda own: min(loss.share, own.shares.idle if own.shares else 0.0), 0.0) or loss
    yield Evidence(
        where=loss.where,
        what="calls to the driver's allocator a step",
        seen=f"{calls.malloc_count / (rank.steps or 1):.0f} cudaMalloc and {calls.free_count / (rank.steps or 1):.0f} "
        f"cudaFree, {ms(per_step_ms(rank, calls.malloc_ns + calls.free_ns))} ms; {idle.seen}",
        wanted="none after the first steps",
        severity=Severity.WARNING if idle.share >= ALLOCATOR_SHARE else Severity.INFO,
        confidence="certain" if rank.job and rank.job.empty_cache_calls else "likely",
        cost=idle.cost(),
    )


def _allocator_ns(rank: Rank) -> int:
    return rank.allocations.malloc_ns + rank.allocations.free_ns if rank.allocations else 0


def _gives_back(rank: Rank) -> bool:
    calls = rank.allocations
    if calls is None or not rank.steps or (rank.job is not None and rank.job.empty_cache_calls == 0):
        return False
    return min(calls.malloc_count, calls.free_count) >= CALLS_A_STEP * rank.steps


@rule(
    "MEM008",
    "memory-to-spare",
    Severity.INFO,
    why="a larger batch would fit, and larger kernels use the device better",
    fix=Fix("double the batch, and adapt the learning rate"),
    confirm="print(torch.cuda.max_memory_reserved())",
    source="half of the memory is our bound",
)
def memory_to_spare(run: Run) -> Iterator[Evidence]:
    """On every rank more than half of the device's memory was never used."""
    known = [(memory.reserved_peak_bytes, memory.total_bytes) for _, memory in _memories(run)]
    used = [peak / total for peak, total in known if peak is not None and total]
    if used and len(used) == len(known) and max(used) < SPARE:
        total = known[0][1] or 0
        yield Evidence(what="peak memory", seen=f"{max(used):.0%} of {size(total)}", wanted=f"{SPARE:.0%} or more")


@rule(
    "MEM009",
    "sharding-not-needed",
    Severity.INFO,
    why="parameters are gathered in each pass although every GPU could hold them all: DDP exchanges gradients only",
    fix=Fix("use DistributedDataParallel, or shard optimizer and gradients only (SHARD_GRAD_OP, ZeRO 2 or 1)"),
    confirm="compare a run under DDP: gpudoctor profile",
    source="ZeRO paper (SC20), section 7: stage 3 moves 1.5 times the bytes of data parallelism",
)
def sharding_not_needed(run: Run) -> Iterator[Evidence]:
    """FSDP or ZeRO 3 shards a model whose whole state would take below 40 % of each GPU, and its gathers show.

    The state is taken as the ranks' parts times the ranks, which errs on the large side.
    """
    if run.shares is None or run.shares.communication < GATHERS or (run.world_size or 1) < 2:
        return
    for rank, memory in _memories(run)[:1]:
        state = _state_bytes(memory) * (run.world_size or 1)
        if not _shards(rank.job.parallel if rank.job else None) or not memory.total_bytes or not state:
            return
        if state < FITS * memory.total_bytes:
            yield Evidence(
                what="parameters, gradients and optimizer of the whole model",
                seen=f"{size(state)}; a GPU has {size(memory.total_bytes)}; gathers {run.shares.communication:.0%}",
                wanted="sharding where they do not fit",
                confidence="likely",
            )


def _shards(parallel: ParallelSetup | None) -> bool:
    return parallel is not None and (parallel.kind in ("fsdp", "fsdp2") or parallel.zero_stage == 3)


def _state_bytes(memory: MemoryUse) -> int:
    return (memory.parameters_bytes or 0) + (memory.gradients_bytes or 0) + (memory.optimizer_bytes or 0)


@rule(
    "MEM010",
    "needs-sharding",
    Severity.WARNING,
    why="each GPU holds the same gradients and optimizer state once more; shared out, they leave room for a batch",
    fix=(
        Fix("shard them", "from torch.distributed.fsdp import fully_shard; fully_shard(model)"),
        Fix(
            "or only the optimizer",
            "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)",
        ),
    ),
    confirm="print(torch.cuda.memory_summary())",
    source="ZeRO paper (SC20), section 3; half of the peak is our bound",
)
def needs_sharding(run: Run) -> Iterator[Evidence]:
    """Little headroom (MEM005) under DDP, and gradients and optimizer state are at least half of the peak.

    Silent for one rank, which has nobody to share with, and for jobs that shard already.
    """
    if (run.world_size or 1) < 2:
        return
    for rank, memory in _memories(run):
        parallel = rank.job.parallel if rank.job else None
        if parallel is None or parallel.kind != "ddp" or not _tight(memory):
            continue
        held = (memory.gradients_bytes or 0) + (memory.optimizer_bytes or 0)
        peak = memory.allocated_peak_bytes or memory.reserved_peak_bytes or 0
        if held >= STATE_SHARE * peak > 0:
            yield Evidence(
                where=_place(run, rank),
                what="gradients and optimizer state",
                seen=f"{size(held)} of a peak of {size(peak)}",
                wanted=f"{size(held // (run.world_size or 1))} a rank, shared out",
            )


RULES: tuple[Rule[Run], ...] = (
    allocator_retries,
    little_headroom,
    empty_cache_in_loop,
    memory_to_spare,
    sharding_not_needed,
    needs_sharding,
)
