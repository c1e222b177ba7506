"""Rules on how ranks differ: one comes late, has a slow GPU, or has more to do. Three verdicts, told apart."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.run import Arrival, Pace, Rank
from gpudoctor.findings import Cost, Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import ms, on_gpu
from gpudoctor.run import Run

LAST, WAIT_SHARE = 0.60, 0.05
SLOWER = 1.10  # GPUs of one node differ by up to 5 %: silicon and cooling
MORE_WORK = 1.10
EXCESS_SHARE = 0.05
EXPLAINED = 0.5
OUR_BOUNDS = "60 % of the collectives and 5 % of the step are our bounds"
DOING = {
    "compute": "kernels of its own",
    "copies": "copies",
    "loader": "its loader",
    "sync": "waiting for its device",
    "launch": "launching kernels on the host",
    "host": "Python code on the host",
}


@rule(
    "COM002",
    "straggler-rank",
    Severity.WARNING,
    why="a collective begins when its last rank has come: all others pay for what one rank does alone",
    fix=Fix("look at what this rank alone does: its trace at the time the others stand in the collective"),
    confirm="gpudoctor attach PID of the rank, a few times; or its trace beside another rank's",
    source=f"PyTorch DDP paper (VLDB 2020), section 3: all ranks meet in each all-reduce; {OUR_BOUNDS}",
)
def straggler_rank(run: Run) -> Iterator[Evidence]:
    """One rank comes last in at least 60 % of the collectives at which others wait, and they wait 5 % of the step.

    Silent where its kernels explain it (COM009, COM010), where it waits for the others just as long (jitter, no
    culprit), where other processes took its CPU for as long, and where it did nothing before that would have made it
    late.
    """
    for arrival in _late(run):
        step_ms = run.step_ms or 0.0
        share = arrival.caused_ms / step_ms
        reason = max(arrival.extra_ms, key=lambda name: arrival.extra_ms[name])
        yield Evidence(
            where=f"rank {arrival.rank}",
            what="comes last, others wait",
            seen=f"in {arrival.last} of {arrival.contested or arrival.matched} collectives; {share:.0%} of the step, "
            f"{ms(arrival.caused_ms)} of {ms(step_ms)} ms",
            wanted=f"below {WAIT_SHARE:.0%}",
            cost=_cost(run, min(arrival.caused_ms, _most_exposed(run, arrival.rank))),
            fix=_fix(reason),
        )
        yield Evidence(
            where=f"rank {arrival.rank}",
            what=f"longer than the others in {DOING.get(reason, reason)}",
            seen=f"{ms(arrival.extra_ms[reason])} ms a step",
            wanted="as long as they",
            source="measured here",
        )


def _late(run: Run) -> list[Arrival]:
    if not run.step_ms:
        return []
    paces = {pace.rank: pace for pace in run.paces}
    taken = {rank.rank: rank.job.cpu_wait_ms or 0.0 for rank in run.ranks if rank.job}
    return [
        arrival
        for arrival in run.arrivals
        if _is_late(arrival, run.step_ms, paces.get(arrival.rank), taken.get(arrival.rank, 0.0))
    ]


def _is_late(arrival: Arrival, step_ms: float, pace: Pace | None, taken_ms: float) -> bool:
    """`taken_ms` a step it was ready to run and had no CPU: once for this rank, once for that."""
    met = arrival.contested or arrival.matched
    own_ms = arrival.caused_ms - arrival.wait_ms - taken_ms
    if not met or arrival.last < LAST * met or own_ms < WAIT_SHARE * step_ms:
        return False
    by_kernels = pace is not None and pace.excess_ms >= EXPLAINED * arrival.caused_ms
    return not by_kernels and sum(arrival.extra_ms.values()) >= EXPLAINED * arrival.caused_ms


def _most_exposed(run: Run, late: int) -> float:
    """A step gets shorter by no more than what another rank waits without computing."""
    return max((other.exposed_wait_ms for other in run.arrivals if other.rank != late), default=0.0)


def _fix(reason: str) -> tuple[Fix, ...]:
    if reason == "loader":
        return (Fix("give every rank the same share of equally dear samples, and more workers (num_workers)"),)
    if reason == "host":
        return (
            Fix("what one rank does alone (logging, metrics, checkpoints, evaluation): do it in a thread, or rarely"),
        )
    return ()


def _cost(run: Run, saved_ms: float) -> Cost | None:
    if not run.step_ms:
        return None
    saved = min(saved_ms, run.step_ms)
    return Cost(share_of_step=saved / run.step_ms, step_ms_now=run.step_ms, step_ms_at_best=run.step_ms - saved)


def named_late(run: Run) -> bool:
    """Some rank is named as the one the others wait for."""
    return bool(_late(run)) or any(True for _ in _slow(run)) or any(True for _ in _busier(run))


@rule(
    "COM009",
    "slow-gpu",
    Severity.WARNING,
    why="the other ranks wait for this GPU at each step",
    fix=(
        Fix("look at its clocks, temperature and power limit; see who else uses it"),
        Fix("leave the board out and have it checked if it stays slow"),
    ),
    confirm="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE",
    source="5 % between GPUs of one node is normal (stas00/ml-engineering, accelerator README); 10 % is our bound",
)
def slow_gpu(run: Run) -> Iterator[Evidence]:
    """The same kernels on the same grids take at least 10 % longer on one rank, and 5 % of the step.

    Communication is left out. Silent where the ranks run different kernels (COM010), and on CPU jobs.
    """
    for pace, rank in _slow(run):
        seen = f"{pace.slowdown or 0:.2f} × the other ranks' time, {ms(pace.excess_ms)} ms more a step"
        yield Evidence(
            where=f"rank {pace.rank}",
            what="the same kernels",
            seen=seen,
            wanted=f"below {SLOWER:g} ×",
            cost=_cost(run, pace.excess_ms),
        )
        clocks = _clocks(run)
        others = [clock for number, clock in clocks.items() if number != pace.rank]
        if pace.rank in clocks and others and rank.device:
            yield Evidence(
                where=f"rank {pace.rank}",
                what="SM clock while it ran",
                seen=f"{clocks[pace.rank]} MHz",
                wanted=f"{max(others)} MHz, as another rank's",
                source="NVML, sampled during the run",
            )


def _slow(run: Run) -> Iterator[tuple[Pace, Rank]]:
    ranks = {rank.rank: rank for rank in run.ranks if on_gpu(rank)}
    for pace in run.paces:
        long_enough = bool(run.step_ms) and pace.excess_ms >= EXCESS_SHARE * (run.step_ms or 0.0)
        if pace.slowdown is not None and pace.slowdown >= SLOWER and long_enough and pace.rank in ranks:
            yield pace, ranks[pace.rank]


def _clocks(run: Run) -> dict[int, int]:
    """Rank → median SM clock of the board it holds most memory on, over the samples in which it was busy."""
    found: dict[int, int] = {}
    most: dict[int, int] = {}
    for board in run.watch.gpus if run.watch else ():
        busy = sorted(
            clock
            for clock, used in zip(board.clock_sm_mhz, board.utilization_ratio, strict=False)
            if clock is not None and (used or 0.0) > 0.5
        )
        for holder in board.holders:
            if busy and holder.rank is not None and (holder.peak_bytes or 0) > most.get(holder.rank, 0):
                most[holder.rank] = holder.peak_bytes or 0
                found[holder.rank] = busy[len(busy) // 2]
    return found


@rule(
    "COM010",
    "uneven-work",
    Severity.WARNING,
    why="all ranks wait for the one with the most to do; its board is as fast as theirs",
    fix=(
        Fix("give the ranks equal work: sort samples by length into batches, or limit tokens rather than samples"),
        Fix("see that DistributedSampler (or the shards of an IterableDataset) deals out equal parts"),
    ),
    confirm="print the shapes of the batches of each rank",
    source="kernels' grids and counts, compared between ranks; 10 % more work and 5 % of the step are our bounds",
)
def uneven_work(run: Run) -> Iterator[Evidence]:
    """One rank runs more or larger kernels than the others: at least 10 % more work, and 5 % of the step.

    Silent on stages of a pipeline (send and receive), which differ by design.
    """
    for pace in _busier(run):
        count = f", {pace.kernels:.2f} × their kernels" if pace.kernels and abs(pace.kernels - 1) >= 0.02 else ""
        yield Evidence(
            where=f"rank {pace.rank}",
            what="work",
            seen=f"{pace.work or 0:.2f} × the other ranks'{count}, {ms(pace.excess_ms)} ms more a step",
            wanted=f"below {MORE_WORK:g} ×",
            confidence="certain" if run.arrivals else "likely",
            cost=_cost(run, pace.excess_ms),
        )


def _busier(run: Run) -> Iterator[Pace]:
    stages = any({"send", "recv", "sendrecv"} & set(series.names) for rank in run.ranks for series in rank.collectives)
    if stages or not run.step_ms:
        return
    for pace in run.paces:
        if pace.slowdown is not None and pace.slowdown >= SLOWER:
            continue
        if (pace.work or 0.0) >= MORE_WORK and pace.excess_ms >= EXCESS_SHARE * run.step_ms:
            yield pace


RULES: tuple[Rule[Run], ...] = (straggler_rank, slow_gpu, uneven_work)
