"""What the host's threads did in the window: fetching, launching, waiting, allocating, leaving the device idle."""

from __future__ import annotations

import re

import numpy as np

from gpudoctor.facts.run import Allocations, Gap, LaunchStats, LoaderStats, Segment, SyncCall
from gpudoctor.profiling import kernels
from gpudoctor.profiling.events import ANNOTATION, KERNEL, OPERATOR, PYTHON, RUNTIME
from gpudoctor.profiling.intervals import Ints, clip, holding, join, length, outermost, overlap
from gpudoctor.profiling.timeline import SHARES, Timeline, blocking_calls, launching_lanes

MAX_GAPS = 50
MAX_SEGMENTS = 600
AFTER_SYNC_NS = 20_000
"""A gap that opens this long after a synchronising call returned is still its doing: the device ran dry meanwhile."""
MAX_SYNCS_NAMED = 20_000


def loader_stats(timeline: Timeline) -> LoaderStats | None:
    """None where the trace marks no fetch."""
    trace, columns = timeline.trace, timeline.trace.columns
    fetches = timeline.asked(kernels.LOADER, ANNOTATION, OPERATOR)
    if not len(fetches):
        return None
    kind = kernels.LOADER.search(trace.names[columns.name[fetches[0]]])
    return LoaderStats(
        kind=kind.group(1) if kind else None,
        count=len(fetches),
        duration_ns=int(columns.duration[fetches].sum()),
        longest_ns=int(columns.duration[fetches].max()),
    )


def launch_stats(timeline: Timeline) -> LaunchStats | None:
    """None on a job without a device."""
    if timeline.on_cpu:
        return None
    columns = timeline.trace.columns
    calls = timeline.asked(kernels.LAUNCH, RUNTIME)
    launched = timeline.inside & (timeline.launch >= 0) & (columns.kind[timeline.work] == KERNEL)
    delays = columns.start[timeline.work[launched]] - columns.start[timeline.launch[launched]]
    return LaunchStats(
        count=len(calls),
        duration_ns=int(columns.duration[calls].sum()),
        median_ns=int(np.median(columns.duration[calls])) if len(calls) else None,
        median_delay_ns=int(np.median(delays)) if len(delays) else None,
        graph_count=len(timeline.asked(kernels.GRAPH_LAUNCH, RUNTIME)),
    )


def allocations(timeline: Timeline) -> Allocations | None:
    """None on a job without a device."""
    if timeline.on_cpu:
        return None
    counted = {
        name: timeline.asked(pattern, RUNTIME)
        for name, pattern in (("malloc", kernels.MALLOC), ("free", kernels.FREE), ("pinned", kernels.PINNED))
    }
    durations = timeline.trace.columns.duration
    return Allocations(
        malloc_count=len(counted["malloc"]),
        malloc_ns=int(durations[counted["malloc"]].sum()),
        free_count=len(counted["free"]),
        free_ns=int(durations[counted["free"]].sum()),
        pinned_count=len(counted["pinned"]),
        pinned_ns=int(durations[counted["pinned"]].sum()),
    )


def sync_calls(timeline: Timeline) -> tuple[SyncCall, ...]:
    """Blocking calls of launching threads by operator, the dearest first."""
    trace, columns = timeline.trace, timeline.trace.columns
    if timeline.on_cpu:
        return ()
    calls = blocking_calls(trace, timeline.work, timeline.launch)
    calls = calls[np.isin(columns.lane[calls], launching_lanes(trace, timeline.work, timeline.launch))]
    calls = calls[holding(columns.start[calls], timeline.host) >= 0][:MAX_SYNCS_NAMED]
    idle = _idle_after(timeline, calls)
    sums: dict[tuple[str, str], list[int]] = {}
    for call, operator, gap in zip(calls.tolist(), _operators(timeline, calls), idle.tolist(), strict=True):
        name = trace.names[columns.name[call]]
        sums.setdefault((operator or name, name), [0, 0, 0])
        total = sums[operator or name, name]
        total[0] += 1
        total[1] += int(columns.duration[call])
        total[2] += gap
    found = (
        SyncCall(name=name, call=call, count=count, blocked_ns=blocked, idle_ns=gap)
        for (name, call), (count, blocked, gap) in sums.items()
    )
    return tuple(sorted(found, key=lambda sync: (-sync.idle_ns, -sync.blocked_ns)))


def _idle_after(timeline: Timeline, calls: Ints) -> Ints:
    """For each call, what it costs: the idle stretches that open under it or right after it; none counts twice.

    Of each stretch only what is blocked or launching again: a log line or a fetch that follows costs its own time.
    """
    columns = timeline.trace.columns
    cost = np.zeros(len(calls), dtype=np.int64)
    if not len(calls):
        return cost
    order = np.argsort(columns.start[calls], kind="stable")
    starts = columns.start[calls][order]
    ends = starts + columns.duration[calls][order] + AFTER_SYNC_NS
    opens = timeline.idle[:, 0]
    last = np.searchsorted(starts, opens, side="right") - 1
    caused = (last >= 0) & (opens <= ends[np.maximum(last, 0)])
    owed = overlap(opens, timeline.idle[:, 1], join(timeline.parts["sync"], timeline.parts["launch"]))
    np.add.at(cost, order[last[caused]], owed[caused])
    return cost


_CARRIERS = re.compile(r"aten::(?:copy_|_to_copy|to|clone|contiguous)$")


def _operators(timeline: Timeline, calls: Ints) -> list[str | None]:
    """For each call the innermost operator around it that is no mere copy; else the outermost copy; else None."""
    trace, columns = timeline.trace, timeline.trace.columns
    names: list[str | None] = [None] * len(calls)
    for lane in np.unique(columns.lane[calls]).tolist():
        operators = np.flatnonzero((columns.kind == OPERATOR) & (columns.lane == lane))
        operators = operators[np.argsort(columns.start[operators], kind="stable")]
        starts, ends = columns.start[operators], columns.start[operators] + columns.duration[operators]
        reach = np.maximum.accumulate(ends) if len(ends) else ends
        for index in np.flatnonzero(columns.lane[calls] == lane).tolist():
            moment = int(columns.start[calls[index]])
            at = int(np.searchsorted(starts, moment, side="right")) - 1
            while at >= 0 and reach[at] > moment:
                if ends[at] > moment:
                    names[index] = trace.names[columns.name[operators[at]]]
                    if not _CARRIERS.match(names[index] or ""):
                        break
                at -= 1
    return names


def longest_gaps(timeline: Timeline) -> tuple[Gap, ...]:
    """The longest stretches of idle time, each with its main cause and what the threads were doing."""
    columns = timeline.trace.columns
    idle = timeline.idle
    chosen = idle[np.argsort(idle[:, 0] - idle[:, 1], kind="stable")[:MAX_GAPS]]
    events = _of_the_loop(timeline)
    begins, ends = columns.start[events], columns.start[events] + columns.duration[events]
    by_end = np.argsort(ends, kind="stable")
    found = []
    for start, end in chosen.tolist():
        causes = {name: clip(timeline.parts[name], start, end) for name in SHARES[3:]}
        cause = max(causes, key=lambda name: length(causes[name]))
        main = max(causes[cause].tolist(), key=lambda piece: piece[1] - piece[0])
        before = int(np.searchsorted(ends[by_end], main[0] + 1, side="right")) - 1
        found.append(
            Gap(
                start_ns=start,
                duration_ns=end - start,
                cause=cause,
                during=_name(timeline, events, _covering(begins, ends, start, end)),
                after=_name(timeline, events, int(by_end[before]) if before >= 0 else None),
            )
        )
    return tuple(found)


def _of_the_loop(timeline: Timeline) -> Ints:
    """Outermost operators and calls, annotations and Python frames of the launching and iterating threads."""
    trace, columns = timeline.trace, timeline.trace.columns
    loading = timeline.asked(kernels.LOADER, ANNOTATION, OPERATOR)
    lanes = np.union1d(launching_lanes(trace, timeline.work, timeline.launch), columns.lane[loading])
    steps = np.array([kernels.STEP.search(name) is not None for name in trace.names], dtype=bool)
    here = np.isin(columns.lane, lanes) & ~steps[columns.name]
    acting = np.flatnonzero(here & ((columns.kind == OPERATOR) | (columns.kind == RUNTIME)))
    acting = acting[outermost(columns.lane[acting], columns.start[acting], columns.duration[acting])]
    framing = np.flatnonzero(here & ((columns.kind == ANNOTATION) | (columns.kind == PYTHON)))
    return np.concatenate((acting, framing))


def _covering(begins: Ints, ends: Ints, start: int, end: int) -> int | None:
    """Index of the event that covers most of the gap, the shortest of several; None where none covers half."""
    covered = np.minimum(ends, end) - np.maximum(begins, start)
    if not len(covered) or covered.max() * 2 < end - start:
        return None
    most = np.flatnonzero(covered >= covered.max() * 0.98)
    return int(most[np.argmin((ends - begins)[most])])


def _name(timeline: Timeline, events: Ints, index: int | None) -> str | None:
    return None if index is None else timeline.trace.names[timeline.trace.columns.name[events[index]]][:200]


def one_step(timeline: Timeline) -> tuple[Segment, ...]:
    """The middle step as segments; where there are too many, the shortest are given to their neighbours."""
    if timeline.steps:
        step = timeline.steps[len(timeline.steps) // 2]
        start, end = step.start_ns, step.end_ns
    else:
        start, end = timeline.start, timeline.end
    rows = [(int(a), int(b), name) for name in SHARES for a, b in clip(timeline.parts[name], start, end)]
    rows.sort()
    grain = 0
    while len(rows) > MAX_SEGMENTS:
        grain = max(2 * grain, (end - start) // (4 * MAX_SEGMENTS))
        rows = _coarser(rows, grain)
    return tuple(Segment(kind=name, start_ns=a, duration_ns=b - a) for a, b, name in rows)


def _coarser(rows: list[tuple[int, int, str]], grain: int) -> list[tuple[int, int, str]]:
    """Segments shorter than the grain join the one before them, and equal neighbours each other."""
    joined: list[tuple[int, int, str]] = []
    for start, end, name in rows:
        if joined and (end - start < grain or joined[-1][2] == name):
            joined[-1] = (joined[-1][0], end, joined[-1][2])
        else:
            joined.append((start, end, name))
    return joined
