"""Rules on the host: what it does while the device waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.job import Pause
from gpudoctor.facts.run import CopyStats, Rank, SyncCall
from gpudoctor.findings import Cost, Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import Loss, cpu_wait_share, lost, ms, on_gpus, per_step_ms, share_of_window
from gpudoctor.rules.sizes import MIB, size
from gpudoctor.run import Run

LAUNCHING = 0.20
AHEAD_NS = 1_000_000
SYNC_SHARE, SYNC_WORTH = 0.05, 0.02
SYNC_WORTH_WITH_LINE = 0.005
"""Where the agent names the line. The profiler slows the host, so that these calls look cheaper than they are: on an
H200 12 a step took 2.4 of 26.3 ms (tests/jobs/gpt.py, with and without them), and 0.6 ms by the trace."""
STALL = 0.10
LONG_GAP_MS, LONG_GAP = 1.0, 0.02
GC_SHARE = 0.03
SAVE_SHARE = 0.05
CHECKPOINT_BYTES, CHECKPOINT_COPIES = 64 * MIB, 20
COMPILING = re.compile(r"dynamo_timed|compile_fx|_compile\b|CompiledFxGraph|inductor", re.IGNORECASE)
PROFILER = "PyTorch documentation, torch.profiler"


@rule(
    "CPU001",
    "launch-bound",
    Severity.WARNING,
    why="the kernels are so short that the host cannot launch them as fast as the device runs them",
    fix=(
        Fix("let one graph launch many kernels", "model = torch.compile(model, mode='reduce-overhead')"),
        Fix("take a larger batch: the same launches then do more work"),
        Fix("launch fewer kernels: a fused optimizer (fused=True), fused layers"),
    ),
    confirm="in the trace: each kernel starts some 10 µs after its launch call, with gaps between kernels",
    source="PyTorch documentation, CUDA semantics, CUDA Graphs; 20 % of the step is our bound",
)
def launch_bound(run: Run) -> Iterator[Evidence]:
    """For at least 20 % of the step the device idles while a thread of the host is launching work for it.

    Not counted: gaps after synchronising calls (CPU002), time in the driver's allocator (MEM006), and what the profiler
    itself adds to a launch, where the step without it is known. Silent where kernels queue, and on CPU jobs.
    """
    loss = lost(on_gpus(run), _launching, LAUNCHING)
    if loss is None:
        return
    rank = loss.ranks[0]
    launches = rank.launches
    count = launches.count / (rank.steps or 1) if launches else 0
    median = f", {launches.median_ns / 1e3:.3g} µs each" if launches and launches.median_ns else ""
    yield Evidence(
        where=loss.where,
        what="idle while the host launches",
        seen=f"{loss.seen}; {count:.0f} launches a step{median}",
        wanted=f"below {LAUNCHING:.0%}",
        confidence=loss.confidence,
        cost=loss.cost(per_step_ms(rank, rank.busy_ns or 0)),
    )


def _launching(rank: Rank) -> float | None:
    launches, shares = rank.launches, rank.shares
    if launches is None or shares is None or launches.median_delay_ns is None or launches.median_delay_ns > AHEAD_NS:
        return 0.0
    other = sum(call.idle_ns for call in rank.syncs)
    if rank.allocations:
        other += rank.allocations.malloc_ns + rank.allocations.free_ns
    share = shares.launch - (share_of_window(rank, other) or 0.0)
    timed = rank.job.timed_step_ms if rank.job else None
    if timed and rank.step_ms and timed < rank.step_ms:
        share = (share * rank.step_ms - (rank.step_ms - timed)) / timed
    return max(0.0, share)


@rule(
    "CPU002",
    "synchronising-calls",
    Severity.WARNING,
    why="the host waits until the device has done all its work, and then the device waits for the next launch",
    fix=(
        Fix("keep numbers on the device, and read them every 100 steps: total += loss.detach()"),
        Fix("copy without waiting: x.to('cpu', non_blocking=True), and read it a step later"),
    ),
    confirm="torch.cuda.set_sync_debug_mode('warn')",
    source="PyTorch tuning guide, Avoid unnecessary CPU-GPU synchronization; 5 % of the step is our bound",
)
def synchronising_calls(run: Run) -> Iterator[Evidence]:
    """The device idles after calls such as `.item()`, `.cpu()` or `nonzero`, which made the host wait for it.

    What they cost is the idle time that a host which need not wait would have hidden. An info below 5 % of the step,
    silent below 2 % (0.5 % where the line is known). Copies of pageable batches (DAT002) and of checkpoints (CPU005)
    are not counted.
    """
    told = any(rank.job is not None and rank.job.syncs for rank in run.ranks)
    loss = lost(on_gpus(run), _synchronising, SYNC_WORTH_WITH_LINE if told else SYNC_WORTH)
    if loss is None:
        return
    rank = loss.ranks[0]
    severity = Severity.WARNING if loss.share >= SYNC_SHARE else Severity.INFO
    calls = _waits(rank)
    places = sorted(rank.job.syncs, key=lambda place: -place.count) if rank.job else []
    count = sum(call.count for call in calls) / (rank.steps or 1)
    stood = per_step_ms(rank, sum(call.blocked_ns for call in calls))
    lines = "; " + ", ".join(f"{place.where} ({place.count} ×)" for place in places[:4]) if places else ""
    yield Evidence(
        where=places[0].where if places else loss.where,
        what=f"waits in {calls[0].name}",
        seen=f"{count:.3g} a step, the host stands {ms(stood)} ms in them; the device idles {loss.seen}{lines}",
        wanted=f"below {SYNC_SHARE:.0%}",
        severity=severity,
        confidence=loss.confidence,
        cost=loss.cost(per_step_ms(rank, rank.busy_ns or 0)),
    )


def _waits(rank: Rank) -> list[SyncCall]:
    """Calls that wait on purpose of the job's own code, dearest first."""
    into_host = [copy for copy in rank.copies if copy.direction == "DtoH" and copy.target == "Pageable"]
    from_host = [copy for copy in rank.copies if copy.direction == "HtoD" and copy.source == "Pageable"]
    read = sum(copy.count for copy in into_host) > sum(copy.count for copy in from_host) and not _saves(rank)
    return [
        call
        for call in rank.syncs
        if "DeviceSynchronize" not in call.call
        and ("Memcpy" not in call.call or read)
        and not _beside_memcpy(call, rank)
    ]


def _beside_memcpy(call: SyncCall, rank: Rank) -> bool:
    """torch follows a copy it must wait for by a synchronisation of the stream, under the same operator."""
    copying = {other.name for other in rank.syncs if "Memcpy" in other.call and other.count >= call.count}
    return "StreamSynchronize" in call.call and call.name in copying


def _synchronising(rank: Rank) -> float | None:
    calls = _waits(rank)
    if rank.shares is None or not calls:
        return 0.0
    stood = sum(call.blocked_ns + call.idle_ns for call in calls)
    return min(rank.shares.launch + rank.shares.sync, share_of_window(rank, stood) or 0.0)


@rule(
    "CPU003",
    "host-stall",
    Severity.WARNING,
    why="while Python logs, computes metrics, sleeps or writes files, nothing is launched and the device stands still",
    fix=(
        Fix("do it in another thread, or every 100 steps"),
        Fix("find the line: the stack of the process, taken a few times", "py-spy dump --pid PID"),
        Fix("see whether it is the garbage collector", "gc.set_debug(gc.DEBUG_STATS)"),
    ),
    confirm="py-spy record --pid PID --output host.svg",
    source=f"{PROFILER}; gaps of 1 ms and 2 % of the step, 10 % together, are our bounds",
)
def host_stall(run: Run) -> Iterator[Evidence]:
    """In long gaps, at least 10 % of the step together, the device idles and no thread loads, waits or launches.

    Silent where the host is merely slow between launches (CPU001), and for what other findings name: garbage collection
    (CPU004), checkpoints (CPU005), compilation (CPU006), workers of the loader that start (DAT005), and other processes
    that take the CPU meanwhile.
    """
    loss = lost(run.ranks, _stalling, STALL)
    if loss is None:
        return
    rank = loss.ranks[0]
    gaps = [gap for gap in rank.gaps if gap.cause == "host" and gap.duration_ns >= _long_ns(rank)]
    during = next((gap.during for gap in gaps if gap.during), None)
    yield Evidence(
        where=loss.where,
        what="idle while the host does something else",
        seen=f"{loss.seen}; the longest gap {ms(max(gap.duration_ns for gap in gaps) / 1e6)} ms"
        + (f", in {during}" if during else ", outside of any operator"),
        wanted=f"below {STALL:.0%}",
        confidence=loss.confidence,
        cost=loss.cost(),
    )


def _long_ns(rank: Rank) -> float:
    return max(LONG_GAP_MS, LONG_GAP * (rank.step_ms or 0.0)) * 1e6


def _stalling(rank: Rank) -> float | None:
    if rank.shares is None:
        return None
    long = sum(
        gap.duration_ns
        for gap in rank.gaps
        if gap.cause == "host" and gap.duration_ns >= _long_ns(rank) and not COMPILING.search(gap.during or "")
    )
    share = share_of_window(rank, long) or 0.0
    if _saves(rank):
        return 0.0
    # Of a job on a GPU the trace itself tells whether a checkpoint lies in it.
    kinds = ("gc", "compile", "evaluation", "workers", *(() if rank.launches is not None else ("save",)))
    explained = sum(_paused_share(rank, kind) for kind in kinds) + cpu_wait_share(rank)
    return max(0.0, min(share, rank.shares.host) - explained)


def _pause(rank: Rank, kind: str) -> Pause | None:
    return next((pause for pause in (rank.job.pauses if rank.job else ()) if pause.kind == kind), None)


def _paused_share(rank: Rank, kind: str) -> float:
    """Share of a step by the agent's own record, at most 1."""
    pause = _pause(rank, kind)
    step = (rank.job.timed_step_ms if rank.job else None) or rank.step_ms
    return min(1.0, (pause.per_step_ms or 0.0) / step) if pause and step else 0.0


@rule(
    "CPU004",
    "gc-pauses",
    Severity.WARNING,
    why="Python's garbage collector walks every object of the process, and nothing is launched meanwhile",
    fix=(
        Fix("take what lives for the whole job out of its sight, before the loop", "gc.collect(); gc.freeze()"),
        Fix("collect when it suits: gc.disable() before the loop, and every 1000 steps", "gc.collect()"),
    ),
    confirm="python -c 'import gc; gc.set_debug(gc.DEBUG_STATS)' at the top of the script",
    source="Python documentation, gc; 3 % of the step is our bound",
)
def gc_pauses(run: Run) -> Iterator[Evidence]:
    """Garbage collection takes at least 3 % of the step.

    Silent where the device hardly idles meanwhile: a host that is far ahead hides its pauses. The longest one is left
    out: once in a run nobody minds it.
    """

    def share(rank: Rank) -> float | None:
        pause = _pause(rank, "gc")
        again = 1 - pause.longest_ms / pause.total_ms if pause and pause.total_ms else 0.0
        paused = _paused_share(rank, "gc") * again
        return paused if rank.shares is None else min(paused, rank.shares.host + rank.shares.launch)

    loss = lost(run.ranks, share, GC_SHARE)
    pause = _pause(loss.ranks[0], "gc") if loss else None
    if loss is None or pause is None:
        return
    yield Evidence(
        where=loss.where,
        what="garbage collection",
        seen=f"{loss.seen}; {pause.count} collections, the longest {ms(pause.longest_ms)} ms",
        wanted=f"below {GC_SHARE:.0%}",
        cost=loss.cost(),
    )


@rule(
    "CPU005",
    "checkpoint-stall",
    Severity.WARNING,
    why="torch.save copies every tensor to the host one by one and writes the file while the GPUs wait",
    fix=(
        Fix("save in the background", "torch.distributed.checkpoint.async_save(state, checkpoint_id=path)"),
        Fix("save less often, and to a local disk first"),
    ),
    confirm="time torch.save",
    source="PyTorch documentation, Distributed checkpoint, async_save; 5 % of the step is our bound",
)
def checkpoint_stall(run: Run) -> Iterator[Evidence]:
    """Saving takes at least 5 % of the time of the steps it was seen in.

    From the trace alone: at least 20 copies and 64 MiB to pageable memory that nothing hides, with the host busy around
    them. A single checkpoint does not tell how often there is one: its share then is only likely.
    """
    seen = lost(run.ranks, lambda rank: _paused_share(rank, "save"), SAVE_SHARE)
    pause = _pause(seen.ranks[0], "save") if seen else None
    if seen is not None and pause is not None:
        yield Evidence(
            where=pause.where or seen.where,
            what="torch.save",
            seen=f"{_timed(seen)}; {pause.count} seen, the longest {ms(pause.longest_ms)} ms",
            wanted=f"below {SAVE_SHARE:.0%}",
            confidence="certain" if pause.count > 1 else "likely",
            cost=_timed_cost(seen),
        )
        return
    loss = lost([rank for rank in on_gpus(run) if _pause(rank, "save") is None and _saves(rank)], _saving, SAVE_SHARE)
    if loss is None:
        return
    copies = _to_pageable(loss.ranks[0])
    amount = f"{sum(copy.count for copy in copies)} copies, {size(sum(copy.bytes or 0 for copy in copies))}"
    yield Evidence(
        where=loss.where,
        what="many tensors copied to the host, and the host busy around them, as torch.save does",
        seen=f"{loss.seen}; {amount}",
        wanted=f"below {SAVE_SHARE:.0%}",
        confidence="likely",
        cost=loss.cost(),
    )


def _timed(loss: Loss) -> str:
    """In words, of the steps outside of the trace."""
    cost = _timed_cost(loss)
    if cost is None:
        return loss.seen
    return f"{loss.share:.0%} of the step, {ms(loss.share * cost.step_ms_now)} of {ms(cost.step_ms_now)} ms"


def _timed_cost(loss: Loss) -> Cost | None:
    """Of the steps outside of the trace, where the agent saw it."""
    job = loss.ranks[0].job
    if job is None or not job.timed_step_ms:
        return loss.cost()
    now = job.timed_step_ms
    return Cost(share_of_step=loss.share, step_ms_now=now, step_ms_at_best=now * (1 - loss.share))


def _to_pageable(rank: Rank) -> list[CopyStats]:
    return [copy for copy in rank.copies if copy.direction == "DtoH" and copy.target == "Pageable"]


def _saves(rank: Rank) -> bool:
    """The trace looks as if a checkpoint was saved in it."""
    if rank.job is not None and _pause(rank, "save") is None:
        return False
    copies = _to_pageable(rank)
    many = sum(copy.count for copy in copies) >= CHECKPOINT_COPIES
    return many and sum(copy.bytes or 0 for copy in copies) >= CHECKPOINT_BYTES


def _saving(rank: Rank) -> float | None:
    """The copies, and the long gaps of the host: pickling and writing."""
    gaps = sum(gap.duration_ns for gap in rank.gaps if gap.cause == "host" and gap.duration_ns >= _long_ns(rank))
    return share_of_window(rank, sum(copy.exposed_ns for copy in _to_pageable(rank)) + gaps)


@rule(
    "CPU006",
    "recompilation",
    Severity.WARNING,
    why="torch.compile compiles anew for each new shape or value it did not expect: seconds, each time",
    fix=(
        Fix("mark what changes", "torch.compile(model, dynamic=True)"),
        Fix("see what made it compile anew", "export TORCH_LOGS=recompiles"),
        Fix("pad batches to few lengths; drop the last short one", "drop_last=True"),
    ),
    confirm="TORCH_LOGS=recompiles python train.py",
    source="PyTorch documentation, torch.compile, Dealing with recompilations",
)
def recompilation(run: Run) -> Iterator[Evidence]:
    """torch.compile compiled again after the warm-up, as the agent counted or as the gaps of the trace are named.

    Silent for the first compilation, which lies in the warm-up.
    """
    counted = [(rank.job.recompiles, rank) for rank in run.ranks if rank.job and rank.job.recompiles]
    gaps = lost(run.ranks, _compiling, STALL)
    compiling = lost(run.ranks, lambda rank: _paused_share(rank, "compile"), 1e-9)
    if counted:
        most, rank = max(counted, key=lambda pair: pair[0])
        steps = rank.job.timed_steps if rank.job else 0
        yield Evidence(
            what="graphs compiled after the warm-up",
            seen=f"{most} in {steps} steps" if steps else str(most),
            wanted="none",
            cost=_timed_cost(compiling) if compiling else None,
        )
    elif gaps is not None:
        yield Evidence(
            where=gaps.where,
            what="compilation",
            seen=gaps.seen,
            wanted="none after the warm-up",
            confidence="likely",
            cost=gaps.cost(),
        )


def _compiling(rank: Rank) -> float | None:
    return share_of_window(
        rank, sum(gap.duration_ns for gap in rank.gaps if COMPILING.search(gap.during or "") and gap.cause != "loader")
    )


RULES: tuple[Rule[Run], ...] = (
    launch_bound,
    synchronising_calls,
    host_stall,
    gc_pauses,
    checkpoint_stall,
    recompilation,
)
