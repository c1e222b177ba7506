"""Rules on how DistributedDataParallel exchanges gradients: buckets, unused parameters, accumulation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.facts.run import Collectives, Rank
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import Loss, lost, ms, per_step_ms
from gpudoctor.rules.sizes import MIB, size
from gpudoctor.run import Run

DEFAULT_CAP = 25 * MIB  # DistributedDataParallel, bucket_cap_mb
MOST_CAP = 200 * MIB
TOO_MANY = 2.0
LEAST_BUCKETS = 8
EXPOSED = 0.05
LATENCY_NS = 100_000  # of a small collective, at most: what else one takes, it waits
LEAST_TO_SPLIT = 8 * MIB
BACKWARD = 2 / 3  # of the compute of a step: gradients of inputs and of weights
NEXT_PASS = 0.25
DDP_PAPER = "PyTorch DDP paper (VLDB 2020), section 3.2, bucketing"


@dataclass(frozen=True)
class _Sync:
    """What one synchronisation of the gradients consists of, on one rank."""

    buckets: float
    bytes: int
    series: Collectives | None
    certain: bool


def _sync(rank: Rank) -> _Sync | None:
    """None where the job is not DDP's, or where the sizes are not known."""
    series = max(rank.collectives, key=lambda own: len(own.step), default=None)
    parallel = rank.job.parallel if rank.job else None
    if parallel is not None and parallel.kind != "ddp":
        return None
    if parallel is not None and parallel.bucket_sizes_bytes:
        return _Sync(len(parallel.bucket_sizes_bytes), sum(parallel.bucket_sizes_bytes), series, True)
    if not rank.forwards or series is None or series.left_out or set(series.names) - {"allreduce", "broadcast"}:
        # Batch normalisation across ranks gathers at each layer, sharded models at each block: no buckets of DDP.
        return None
    reduced = [at for at, name in enumerate(series.name) if series.names[name] == "allreduce"]
    sizes = [series.bytes[at] for at in reduced]
    known = [own for own in sizes if own is not None]
    passes = rank.forwards
    if len(known) == len(sizes):
        moved = sum(known)
    else:
        # gloo reduces what was copied to pinned memory of the host.
        moved = sum(copy.bytes or 0 for copy in rank.copies if (copy.direction, copy.target) == ("DtoH", "Pinned"))
    return _Sync(len(reduced) / passes, moved // passes, series, False) if moved and reduced else None


@rule(
    "COM004",
    "small-buckets",
    Severity.WARNING,
    why="each bucket is a collective with a latency of its own, and small ones use little of the link",
    fix=Fix("reduce gradients in larger buckets", "DistributedDataParallel(model, bucket_cap_mb=25)"),
    confirm="print(model._get_ddp_logging_data()['bucket_sizes'])",
    source=f"{DDP_PAPER}; twice the buckets of the default cap are our bound",
)
def small_buckets(run: Run) -> Iterator[Evidence]:
    """DDP reduces its gradients in more than twice the buckets that its default cap of 25 MiB makes.

    Silent below 8 buckets, where communication is hidden (below 5 % of the step), and where other collectives than
    gradient buckets cannot be told apart.
    """
    for rank in run.ranks[:1]:
        sync = _sync(rank)
        if sync is None or rank.shares is None or rank.shares.communication < EXPOSED:
            return
        usual = sync.bytes / DEFAULT_CAP + 2  # the first is of 1 MiB, and one tensor may overflow
        if sync.buckets < max(LEAST_BUCKETS, TOO_MANY * usual):
            return
        cap = max(DEFAULT_CAP, min(MOST_CAP, sync.bytes // 16))
        latency = min(LATENCY_NS, min(sync.series.duration_ns, default=0)) if sync.series else 0
        passes = (rank.forwards or rank.steps or 1) / (rank.steps or 1)
        wasted = (sync.buckets - usual) * latency * passes / 1e6
        share = min(rank.shares.communication, wasted / rank.step_ms) if rank.step_ms else 0.0
        yield Evidence(
            what="buckets a synchronisation",
            seen=f"{sync.buckets:.0f} for {size(sync.bytes)} of gradients, {size(int(sync.bytes / sync.buckets))} each",
            wanted=f"about {math.ceil(usual)} at 25 MiB",
            confidence="certain" if sync.certain else "likely",
            cost=Loss((rank,), share, "").cost(),
            fix=(
                Fix(
                    "reduce gradients in larger buckets",
                    f"DistributedDataParallel(model, bucket_cap_mb={cap // MIB})",
                ),
            ),
        )


@rule(
    "COM005",
    "one-bucket",
    Severity.WARNING,
    why="the one bucket is full only when the backward pass is over, so nothing is left to hide the exchange",
    fix=Fix(
        "reduce the first gradients while the last are computed", "DistributedDataParallel(model, bucket_cap_mb=25)"
    ),
    confirm="print(model._get_ddp_logging_data()['bucket_sizes'])",
    source=f"{DDP_PAPER}; 8 MiB and 5 % of the step are our bounds",
)
def one_bucket(run: Run) -> Iterator[Evidence]:
    """DDP reduces all gradients, 8 MiB or more, in one bucket, and at least 5 % of the step is exposed communication.

    Silent for small models, where one exchange is the quickest.
    """
    for rank in run.ranks[:1]:
        sync = _sync(rank)
        if sync is None or rank.shares is None or sync.buckets > 1.01 or sync.bytes < LEAST_TO_SPLIT:
            return
        saved = min(rank.shares.communication, BACKWARD * rank.shares.compute)
        if rank.shares.communication < EXPOSED or saved <= 0:
            return
        cap = max(1, min(DEFAULT_CAP, sync.bytes // 4) // MIB)
        yield Evidence(
            what="buckets a synchronisation",
            seen=f"1 of {size(sync.bytes)}; {rank.shares.communication:.0%} of the step is communication in plain view",
            wanted="4 or more",
            confidence="certain" if sync.certain else "likely",
            cost=Loss((rank,), saved, "").cost(),
            fix=(
                Fix(
                    "reduce the first gradients while the last are computed",
                    f"DistributedDataParallel(model, bucket_cap_mb={cap})",
                ),
            ),
        )


@rule(
    "COM006",
    "needless-find-unused",
    Severity.WARNING,
    why="DDP walks the whole graph after each forward pass, and exchanges a map of what was used, for nothing",
    fix=Fix("leave it out", "DistributedDataParallel(model, find_unused_parameters=False)"),
    confirm="print(model._get_ddp_logging_data()['unused_parameter_size']); DDP warns of it too",
    source="PyTorch documentation, DistributedDataParallel, find_unused_parameters",
)
def needless_find_unused(run: Run) -> Iterator[Evidence]:
    """DDP looks for unused parameters (find_unused_parameters=True), and on no rank was there one.

    Silent where DDP did not count them, and with static_graph=True, which looks only once.
    """
    setups = [rank.job.parallel for rank in run.ranks if rank.job and rank.job.parallel]
    asked = [setup for setup in setups if setup.find_unused_parameters and not setup.static_graph]
    if asked and len(asked) == len(setups) and all(setup.unused_parameters == 0 for setup in asked):
        yield Evidence(
            where="find_unused_parameters",
            what="parameters without gradient",
            seen="none, and find_unused_parameters=True",
            wanted="find_unused_parameters=False",
            # A branch that is taken now and then may leave some unused in other steps.
            confidence="likely",
        )


@rule(
    "COM007",
    "all-reduce-every-microstep",
    Severity.WARNING,
    why="gradients that are only added up are exchanged all the same: all but the last exchange is wasted",
    fix=(
        Fix(
            "exchange in the last backward pass of a step only",
            "with contextlib.nullcontext() if last_microstep else model.no_sync():",
        ),
        Fix("with accelerate", "with accelerator.accumulate(model):"),
    ),
    confirm="count the all-reduces of one step in the trace",
    source="PyTorch documentation, DistributedDataParallel.no_sync; 5 % of the step is our bound",
)
def all_reduce_every_microstep(run: Run) -> Iterator[Evidence]:
    """DDP synchronises the gradients in each of several passes of one optimizer step, at 5 % of the step or more.

    Silent where the exchanges come together at the end of the step (no_sync is used), and where compute hides them.
    """

    def share(rank: Rank) -> float | None:
        passes = _passes(rank)
        if passes is None or rank.shares is None or not _syncs_each_pass(rank, passes):
            return 0.0
        return rank.shares.communication * (1 - 1 / passes)

    loss = lost(run.ranks, share, EXPOSED)
    if loss is None:
        return
    rank = loss.ranks[0]
    passes = _passes(rank) or 1
    whole = per_step_ms(rank, rank.communication_ns or 0)
    yield Evidence(
        where=loss.where,
        what="synchronisations an optimizer step",
        seen=f"{passes}; communication takes {ms(whole)} ms a step",
        wanted="1",
        confidence=loss.confidence,
        cost=loss.cost(),
    )


def _passes(rank: Rank) -> int | None:
    """Forward passes through DDP an optimizer step, where several make one."""
    if not rank.forwards or not rank.optimizer_steps or rank.forwards % rank.optimizer_steps:
        return None
    passes = rank.forwards // rank.optimizer_steps
    return passes if passes > 1 else None


def _syncs_each_pass(rank: Rank, passes: int) -> bool:
    """In most steps as many breaks between collectives as passes, of like length: a forward pass lies in each.

    Under no_sync one long break is followed by the buckets of one backward pass.
    """
    series = max(rank.collectives, key=lambda own: len(own.step), default=None)
    if series is None:
        return False
    ends = [start + duration for start, duration in zip(series.start_ns, series.duration_ns, strict=True)]
    breaks: dict[int, list[int]] = {}
    latest: int | None = None
    first = series.step[0] if series.step else None  # its first break lies before the window
    for step, start, end in zip(series.step, series.start_ns, ends, strict=True):
        if latest is not None:
            breaks.setdefault(step, []).append(max(0, start - latest))
        latest = end if latest is None else max(latest, end)
    tried = [sorted(own, reverse=True) for step, own in breaks.items() if step != first or len(breaks) == 1]
    each = [own for own in tried if len(own) >= passes and own[passes - 1] >= NEXT_PASS * own[0] > 0]
    return bool(tried) and 2 * len(each) > len(tried)


RULES: tuple[Rule[Run], ...] = (small_buckets, one_bucket, needless_find_unused, all_reduce_every_microstep)
