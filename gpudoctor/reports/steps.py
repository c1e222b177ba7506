"""Where the steps of a job went, as every format shows it: lengths, parts, and the ranks that stand out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.reports.figures import count, milliseconds, percent, rate
from gpudoctor.reports.grouping import Group
from gpudoctor.run import Run

NAMES: dict[str, str] = {
    "compute": "kernels (or CPU operators) run",
    "communication": "collectives, nothing hides them",
    "copies": "copies, nothing else runs",
    "loader": "idle: waits for the data loader",
    "sync": "idle: behind a blocking call",
    "launch": "idle: the host still launches",
    "host": "idle: Python, logging, the rest",
}
"""Every share, in order of precedence, and what it is: idle is the device."""
APART = 0.05
"""Ranks whose shares, or step lengths, are no further apart look the same in a bar of sixty cells."""
MANY = 8
"""Ranks that are all shown."""
SAME_LENGTH = 0.05
"""Traced and timed steps whose lengths are closer are told as one."""


@dataclass(frozen=True)
class Part:
    """One share of a step."""

    name: str
    share: float
    """0 to 1."""
    length_ms: float | None


def parts(shares: StepShares, step_ms: float | None) -> tuple[Part, ...]:
    """All seven, in order of precedence."""
    return tuple(
        Part(name, share, None if step_ms is None else share * step_ms)
        for name, share in ((name, getattr(shares, name)) for name in NAMES)
    )


def cells(shares: StepShares, width: int) -> dict[str, int]:
    """How many of `width` cells each share gets. They fill the width: what rounding leaves goes to who lost most."""
    exact = {name: getattr(shares, name) * width for name in NAMES}
    whole = {name: int(cell) for name, cell in exact.items()}
    lost = sorted(NAMES, key=lambda name: whole[name] - exact[name])
    for name in lost[: max(0, width - sum(whole.values()))]:
        whole[name] += 1
    return whole


def timed_step_ms(run: Run) -> float | None:
    """Length of a step without a profiler, mean over ranks; None where the agent timed none."""
    lengths = [rank.job.timed_step_ms for rank in run.ranks if rank.job and rank.job.timed_step_ms]
    return statistics.fmean(lengths) if lengths else None


def pace(run: Run) -> str:
    """`82.1 ms · 195 samples/s · 12.5k tokens/s · timed 20 steps without a profiler, traced 5`."""
    timed = timed_step_ms(run)
    length = timed or run.step_ms
    if length is None:
        return "no whole step was seen"
    told = [milliseconds(length)]
    if run.samples_per_s:
        told.append(f"{rate(run.samples_per_s)} samples/s")
    if run.tokens_per_s:
        told.append(f"{rate(run.tokens_per_s)} tokens/s")
    return " · ".join([*told, *_measured(run, timed)])


def apart(run: Run) -> bool:
    """The ranks' steps differ, in what they hold or in length."""
    measured = [rank for rank in run.ranks if rank.shares is not None]
    if len(measured) < 2:
        return False
    lengths = [rank.step_ms for rank in measured if rank.step_ms]
    longer = max(lengths) / min(lengths) - 1 if lengths else 0.0
    return longer > APART or any(max(column) - min(column) > APART for column in _columns(measured))


def outstanding(run: Run) -> tuple[tuple[Rank, str], ...]:
    """The ranks to show, with a word on why: all of a few; of many the slowest, the fastest and the oddest."""
    measured = [rank for rank in run.ranks if rank.shares is not None]
    if len(measured) <= MANY:
        return tuple((rank, "") for rank in measured)
    columns = _columns(measured)
    middles = [statistics.median(column) for column in columns]
    odd = {
        rank.rank: max(abs(column[row] - middle) for column, middle in zip(columns, middles, strict=True))
        for row, rank in enumerate(measured)
    }
    chosen: dict[int, str] = {}
    timed = [rank for rank in measured if rank.step_ms is not None]
    if timed:
        chosen[max(timed, key=lambda rank: rank.step_ms or 0).rank] = "slowest"
        chosen.setdefault(min(timed, key=lambda rank: rank.step_ms or 0).rank, "fastest")
    for number in sorted(odd, key=lambda number: -odd[number]):
        if len(chosen) < MANY and odd[number] > APART:
            chosen.setdefault(number, "odd")
    return tuple((rank, chosen[rank.rank]) for rank in measured if rank.rank in chosen)


def cost(group: Group) -> str:
    """`48 % of the step: 82.1 ms → at best 60 ms`; empty for a finding without one."""
    told = group.first.cost
    if told is None:
        return ""
    best = milliseconds(told.step_ms_at_best)
    return f"{percent(told.share_of_step)} of the step: {milliseconds(told.step_ms_now)} → at best {best}"


def _measured(run: Run, timed: float | None) -> list[str]:
    timed_steps = min((rank.job.timed_steps for rank in run.ranks if rank.job and rank.job.timed_steps), default=0)
    traced = f"traced {run.steps}" if run.steps else ""
    if run.step_ms and timed and abs(run.step_ms / timed - 1) > SAME_LENGTH and traced:
        traced += f" ({milliseconds(run.step_ms)} each)"
    if timed is None:
        return [f"traced {count(run.steps, 'step')}"] if run.steps else []
    return [f"timed {count(timed_steps, 'step')} without a profiler{', ' * bool(traced)}{traced}"]


def _columns(ranks: Sequence[Rank]) -> list[list[float]]:
    return [[getattr(rank.shares, name) for rank in ranks] for name in NAMES]
