"""Arithmetic on intervals of time: sets of them as sorted, disjoint arrays of shape (n, 2) in nanoseconds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Intervals = NDArray[np.int64]
"""Shape (n, 2): start and end of each, sorted, none touching another, none empty."""

NOTHING: Intervals = np.empty((0, 2), dtype=np.int64)


def union(starts: Ints, ends: Ints) -> Intervals:
    """Time in which at least one of the events runs; the events in any order, overlapping or not."""
    real = ends > starts
    starts, ends = starts[real], ends[real]
    if not len(starts):
        return NOTHING
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    return np.column_stack((starts[np.r_[0, opens]], reach[np.r_[opens - 1, len(starts) - 1]]))


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Time that is in both."""
    if not len(left) or not len(right):
        return NOTHING
    times = np.concatenate((left[:, 1], right[:, 1], left[:, 0], right[:, 0]))
    change = np.repeat(np.array([-1, 1], dtype=np.int64), len(left) + len(right))
    order = np.argsort(times, kind="stable")  # ends before starts at the same time: touching is not overlapping
    both = np.flatnonzero(np.cumsum(change[order]) == 2)
    times = times[order]
    return _merged(np.column_stack((times[both], times[both + 1])))


def _merged(pieces: Intervals) -> Intervals:
    """The same without empty pieces, touching ones joined."""
    return union(pieces[:, 0], pieces[:, 1])


def gaps(intervals: Intervals, start: int, end: int) -> Intervals:
    """Time between `start` and `end` that is in none of the intervals."""
    inside = clip(intervals, start, end)
    return _merged(np.column_stack((np.r_[start, inside[:, 1]], np.r_[inside[:, 0], end])))


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """The part between `start` and `end`."""
    return _merged(np.clip(intervals, start, end))


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Time that is in `left` and not in `right`."""
    if not len(left):
        return NOTHING
    return intersect(left, gaps(right, int(left[0, 0]), int(left[-1, 1])))


def join(*sets: Intervals) -> Intervals:
    """Time that is in any of them."""
    every = np.concatenate(sets) if sets else NOTHING
    return union(every[:, 0], every[:, 1])


def length(intervals: Intervals) -> int:
    """Nanoseconds in all of them."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def overlap(starts: Ints, ends: Ints, intervals: Intervals) -> Ints:
    """For each event, how much of it lies in the intervals."""
    if not len(intervals):
        return np.zeros(len(starts), dtype=np.int64)
    return _before(ends, intervals) - _before(starts, intervals)


def _before(times: Ints, intervals: Intervals) -> Ints:
    """For each time, nanoseconds of the intervals that lie before it."""
    done = np.r_[0, np.cumsum(intervals[:, 1] - intervals[:, 0])]
    index = np.searchsorted(intervals[:, 0], times, side="right")
    last = np.maximum(index - 1, 0)
    inside = np.minimum(times, intervals[last, 1]) - intervals[last, 0]
    return np.where(index > 0, done[last] + inside, 0)


def holding(times: Ints, intervals: Intervals) -> Ints:
    """For each time, index of the interval that holds it (start included, end not), or -1."""
    if not len(intervals):
        return np.full(len(times), -1, dtype=np.int64)
    index = np.searchsorted(intervals[:, 0], times, side="right") - 1
    held = (index >= 0) & (times < intervals[np.maximum(index, 0), 1])
    return np.where(held, index, -1)


def outermost(lanes: NDArray[np.integer[Any]], starts: Ints, durations: Ints) -> Mask:
    """Which events lie in no other event of their lane."""
    shown = np.ones(len(starts), dtype=bool)
    order = np.lexsort((-durations, starts, lanes))
    starts, ends, lanes = starts[order], (starts + durations)[order], lanes[order]
    for begin, end in pairwise([*np.flatnonzero(np.diff(lanes, prepend=-1)).tolist(), len(lanes)]):
        reach = np.maximum.accumulate(ends[begin:end])
        shown[order[begin + 1 : end]] = starts[begin + 1 : end] >= reach[:-1]
    return shown
