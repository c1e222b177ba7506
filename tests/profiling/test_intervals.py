"""The arithmetic against counting moments one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.profiling.intervals import (
    NOTHING,
    Intervals,
    clip,
    gaps,
    holding,
    intersect,
    join,
    length,
    overlap,
    subtract,
    union,
)

EVENTS = st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 15)), max_size=12)


def times(events: list[tuple[int, int]]) -> Intervals:
    pairs = np.array([(start, start + duration) for start, duration in events], dtype=np.int64).reshape(-1, 2)
    return union(pairs[:, 0], pairs[:, 1])


def moments(intervals: Intervals) -> set[int]:
    return {moment for start, end in intervals.tolist() for moment in range(start, end)}


def test_union_of_nothing_and_of_events_without_duration_is_nothing() -> None:
    assert len(times([])) == len(times([(3, 0)])) == length(NOTHING) == 0


@given(EVENTS)
def test_union_holds_every_moment_once_and_joins_what_touches(events: list[tuple[int, int]]) -> None:
    merged = times(events)
    assert moments(merged) == {moment for start, duration in events for moment in range(start, start + duration)}
    assert (merged[1:, 0] > merged[:-1, 1]).all()
    assert length(merged) == len(moments(merged))


@given(EVENTS, EVENTS)
def test_sets_of_times_behave_as_sets_of_moments(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = times(left), times(right)
    assert moments(intersect(a, b)) == moments(a) & moments(b)
    assert moments(subtract(a, b)) == moments(a) - moments(b)
    assert moments(join(a, b)) == moments(a) | moments(b)


@given(EVENTS, st.integers(-50, 0), st.integers(1, 60))
def test_a_window_is_what_runs_in_it_and_the_gaps(events: list[tuple[int, int]], start: int, end: int) -> None:
    whole, window = times(events), set(range(start, end))
    assert moments(clip(whole, start, end)) == moments(whole) & window
    assert moments(gaps(whole, start, end)) == window - moments(whole)


@given(EVENTS, EVENTS)
def test_overlap_of_each_event_is_its_moments_in_the_set(
    events: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    starts = np.array([start for start, _ in events], dtype=np.int64)
    ends = starts + np.array([duration for _, duration in events], dtype=np.int64)
    held = moments(times(others))
    wanted = [sum(moment in held for moment in range(start, start + duration)) for start, duration in events]
    assert overlap(starts, ends, times(others)).tolist() == wanted


@given(st.lists(st.integers(-45, 60), max_size=10), EVENTS)
def test_holding_names_the_interval_of_a_moment(asked: list[int], events: list[tuple[int, int]]) -> None:
    intervals = times(events)
    for moment, index in zip(asked, holding(np.array(asked, dtype=np.int64), intervals).tolist(), strict=True):
        assert (index >= 0) == (moment in moments(intervals))
        if index >= 0:
            assert intervals[index, 0] <= moment < intervals[index, 1]
