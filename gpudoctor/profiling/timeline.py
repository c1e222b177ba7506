"""Where one rank's time went: whole steps on the device's clock, each moment of them counted once.

The definitions stand in docs/timeline.md; `StepShares` repeats what each share means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpudoctor.facts.run import Step, StepShares
from gpudoctor.profiling import kernels
from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.events import ANNOTATION, COPY, KERNEL, MEMSET, OPERATOR, RUNTIME
from gpudoctor.profiling.intervals import (
    NOTHING,
    Intervals,
    Ints,
    Mask,
    clip,
    holding,
    intersect,
    join,
    length,
    subtract,
    union,
)
from gpudoctor.profiling.trace import Trace

SHARES = ("compute", "communication", "copies", "loader", "sync", "launch", "host")
"""In order of precedence."""


@dataclass(frozen=True)
class Timeline:
    """One trace cut into whole steps. Events are named by their place in the trace's columns."""

    trace: Trace
    on_cpu: bool
    """No device in the trace: operators are the work."""
    steps: tuple[Step, ...]
    """Whole steps; empty where the trace has no step marks."""
    start: int
    end: int
    host: Intervals
    """The same steps as their marks on the host show them; it may be steps ahead of the device. The window itself where
    there are no marks."""
    work: Ints
    """The events that make the device's time: kernels, copies, memsets; else operators."""
    work_step: Ints
    """Number of the step that launched each; -1 for none."""
    launch: Ints
    """Place in the trace of the call that launched each; -1 where it is not in the trace."""
    whole: dict[str, Intervals] = field(default_factory=dict)
    """The seven shares as times over the whole trace, the time before the window included."""

    @cached_property
    def parts(self) -> dict[str, Intervals]:
        """The seven shares as times; together they are the window."""
        return {name: clip(times, self.start, self.end) for name, times in self.whole.items()}

    @property
    def window(self) -> int:
        return self.end - self.start

    @cached_property
    def inside(self) -> Mask:
        """Of `work`, what the window's steps launched; without step marks all of it."""
        if not self.steps:
            return np.ones(len(self.work), dtype=bool)
        return np.isin(self.work_step, _numbers(self.steps))

    def asked(self, pattern: re.Pattern[str], *kinds: int) -> Ints:
        """Events of the host whose name shows the pattern, in the window's steps."""
        found = named(self.trace, pattern, *kinds)
        return found[holding(self.trace.columns.start[found], self.host) >= 0]

    @property
    def shares(self) -> StepShares:
        return shares_of(self.parts, self.window)

    @cached_property
    def idle(self) -> Intervals:
        """Device idle time, as stretches."""
        return join(*(self.parts[name] for name in SHARES[3:]))


def shares_of(parts: dict[str, Intervals], window: int) -> StepShares:
    return StepShares(**{name: length(parts[name]) / window for name in SHARES})


def named(trace: Trace, pattern: re.Pattern[str], *kinds: int) -> Ints:
    """Places of the events of these kinds in whose name the pattern is found, which is tried once a name."""
    found = np.array([pattern.search(name) is not None for name in trace.names], dtype=bool)
    return np.flatnonzero(found[trace.columns.name] & np.isin(trace.columns.kind, kinds))


def measure(trace: Trace) -> Timeline:
    """Cut the trace into steps and account for every moment of its window.

    Raises TraceError where it holds neither work of a device nor operators.
    """
    columns = trace.columns
    on_device = columns.kind >= KERNEL
    on_cpu = not on_device.any()
    work = _host_work(trace) if on_cpu else np.flatnonzero(on_device)
    if not len(work):
        raise TraceError("no kernel and no operator in it")
    launch = work if on_cpu else _launches(trace, work)
    marks = _step_marks(trace)
    work_step = _steps_of(trace, launch, marks)
    steps, start, end = _window(trace, work, work_step, marks)
    if end <= start:
        raise TraceError("no time passes in it")
    whole = _account(trace, on_cpu, work, launch, int(columns.start.min()), end)
    whole_span: Intervals = np.array([[start, end]], dtype=np.int64)
    host = marks.spans[np.isin(marks.numbers, _numbers(steps))] if steps else whole_span
    return Timeline(trace, on_cpu, steps, start, end, host, work, work_step, launch, whole)


def _numbers(steps: Iterable[Step]) -> Ints:
    return np.array([-1 if step.number is None else step.number for step in steps], dtype=np.int64)


def _host_work(trace: Trace) -> Ints:
    """Operators of a job without a device: not those that only ask for a collective, nor those inside the loader.

    What is computed to make a batch is the loader's time, or a loader without workers could never starve anybody.
    """
    columns = trace.columns
    asking = np.array([name.startswith(("c10d::", "gloo:", "mpi:")) for name in trace.names], dtype=bool)
    work = np.flatnonzero((columns.kind == OPERATOR) & ~asking[columns.name])
    for mark in (kernels.LOADER, kernels.HOST_COLLECTIVE):
        spans = named(trace, mark, ANNOTATION, OPERATOR)
        for lane in np.unique(columns.lane[spans]).tolist():
            mine = spans[columns.lane[spans] == lane]
            held = holding(
                columns.start[work], union(columns.start[mine], columns.start[mine] + columns.duration[mine])
            )
            work = work[(held < 0) | (columns.lane[work] != lane)]
    return work


def _launches(trace: Trace, work: Ints) -> Ints:
    """For each piece of work the call with its correlation id, or -1."""
    columns = trace.columns
    calls = np.flatnonzero((columns.kind == RUNTIME) & (columns.correlation >= 0))
    if not len(calls):
        return np.full(len(work), -1, dtype=np.int64)
    calls = calls[np.argsort(columns.correlation[calls], kind="stable")]
    ids = columns.correlation[calls]
    at = np.minimum(np.searchsorted(ids, columns.correlation[work]), len(ids) - 1)
    return np.where((ids[at] == columns.correlation[work]) & (columns.correlation[work] >= 0), calls[at], -1)


@dataclass(frozen=True)
class _Marks:
    """ProfilerStep spans on the host, in order."""

    numbers: Ints
    spans: Intervals


def _step_marks(trace: Trace) -> _Marks:
    columns = trace.columns
    marks = named(trace, kernels.STEP, ANNOTATION, OPERATOR)
    by_number: dict[int, tuple[int, int]] = {}
    for mark in marks.tolist():
        found = kernels.STEP.search(trace.names[columns.name[mark]])
        begin = int(columns.start[mark])
        if found is not None:
            by_number.setdefault(int(found.group(1)), (begin, begin + int(columns.duration[mark])))
    ordered = sorted(by_number.items(), key=lambda item: item[1])
    return _Marks(
        np.array([number for number, _ in ordered], dtype=np.int64),
        np.array([span for _, span in ordered], dtype=np.int64).reshape(-1, 2),
    )


def _steps_of(trace: Trace, launch: Ints, marks: _Marks) -> Ints:
    """Number of the step in whose span each piece of work was launched; -1 outside, or where no launch is known."""
    index = np.where(launch >= 0, holding(trace.columns.start[launch], marks.spans), -1)
    return np.where(index >= 0, marks.numbers[index], -1) if len(marks.numbers) else index


def _window(trace: Trace, work: Ints, work_step: Ints, marks: _Marks) -> tuple[tuple[Step, ...], int, int]:
    """Whole steps, and the time they span."""
    columns = trace.columns
    ends = columns.start[work] + columns.duration[work]
    known = [number for number in marks.numbers.tolist() if (work_step == number).any()]
    if not known:
        return (), int(columns.start[work].min()), int(ends.max())
    bounds = np.maximum.accumulate([ends[work_step == number].max() for number in known])
    if len(known) == 1:
        # A single step has no step before it to begin at: from its mark on, or from the end of what still ran then.
        mark = int(marks.spans[marks.numbers == known[0]][0, 0])
        before = ends[(work_step != known[0]) & (columns.start[work] < mark)]
        begin = min(max(mark, int(before.max(initial=mark))), int(columns.start[work][work_step == known[0]].min()))
        return (Step(number=known[0], start_ns=begin, end_ns=int(bounds[0])),), begin, int(bounds[0])
    steps = tuple(
        Step(number=number, start_ns=int(start), end_ns=int(end))
        for number, start, end in zip(known[1:], bounds[:-1], bounds[1:], strict=True)
    )
    return steps, int(bounds[0]), int(bounds[-1])


def _account(trace: Trace, on_cpu: bool, work: Ints, launch: Ints, start: int, end: int) -> dict[str, Intervals]:
    """Every moment of this time under one share."""
    busy = _busy(trace, on_cpu, work)
    held = _held_back(trace, on_cpu, work, launch)
    parts: dict[str, Intervals] = {}
    left: Intervals = np.array([[start, end]], dtype=np.int64)
    for name, times in (*busy.items(), *held.items()):
        parts[name] = intersect(left, times)
        left = subtract(left, times)
    parts["host"] = left
    return parts


def _busy(trace: Trace, on_cpu: bool, work: Ints) -> dict[str, Intervals]:
    """Times in which the device runs something, overlapping still."""
    columns = trace.columns
    kinds = columns.kind[work]
    collective = collectives(trace)
    host_collectives = named(trace, kernels.HOST_COLLECTIVE, ANNOTATION)
    computing = work if on_cpu else work[((kinds == KERNEL) | (kinds == MEMSET)) & ~np.isin(work, collective)]
    return {
        "compute": times(trace, computing),
        "communication": times(trace, np.concatenate((collective, host_collectives))),
        "copies": times(trace, work[kinds == COPY]),
    }


def collectives(trace: Trace) -> Ints:
    """Places of the device's collective kernels."""
    named = np.array([kernels.is_collective(name) for name in trace.names], dtype=bool)
    return np.flatnonzero((trace.columns.kind == KERNEL) & named[trace.columns.name])


def times(trace: Trace, at: Ints) -> Intervals:
    """Time in which any of these events runs."""
    columns = trace.columns
    return union(columns.start[at], columns.start[at] + columns.duration[at])


def launching_lanes(trace: Trace, work: Ints, launch: Ints) -> Ints:
    """Threads that launch kernels: on a job without a device, those that run operators."""
    launched = launch[(launch >= 0) & (trace.columns.kind[work] != COPY)]
    return np.unique(trace.columns.lane[launched])


def _held_back(trace: Trace, on_cpu: bool, work: Ints, launch: Ints) -> dict[str, Intervals]:
    """Times in which the state of the iterating or launching threads would name an idle device, overlapping still."""
    loading = times(trace, named(trace, kernels.LOADER, ANNOTATION, OPERATOR))
    if on_cpu:
        return {"loader": loading, "sync": NOTHING, "launch": NOTHING}
    columns = trace.columns
    launching = np.isin(columns.lane, launching_lanes(trace, work, launch))
    blocking = blocking_calls(trace, work, launch)
    active = np.flatnonzero(launching & ((columns.kind == OPERATOR) | (columns.kind == RUNTIME)))
    return {
        "loader": loading,
        "sync": times(trace, blocking[launching[blocking]]),
        "launch": times(trace, active),
    }


def blocking_calls(trace: Trace, work: Ints, launch: Ints) -> Ints:
    """Calls that hold their thread until the device is done: synchronising ones, and copies of pageable memory.

    The latter are asynchronous by name alone: the driver stages them through a buffer of its own.
    """
    columns = trace.columns
    pageable = np.array(["Pageable" in name for name in trace.names], dtype=bool)
    copying = launch[(columns.kind[work] == COPY) & pageable[columns.name[work]] & (launch >= 0)]
    return np.unique(np.concatenate((named(trace, kernels.SYNC, RUNTIME), copying)))
