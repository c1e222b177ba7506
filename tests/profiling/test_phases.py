"""The agent's phases, on a clock of our own."""

from gpudoctor.profiling.agent.phases import DONE, SYNC_CALLS, TIMING, TRACING, WARM_UP, Phases


def _phases(phases: Phases, seconds_a_step: float, steps: int, *, leads: bool = True) -> list[str]:
    return [phases.step(count, count * seconds_a_step, leads=leads) for count in range(1, steps + 1)]


def test_fast_steps_are_timed_twenty_times() -> None:
    phases = Phases(wait=5, steps=6)
    seen = _phases(phases, 0.01, 40)
    assert [seen.count(name) for name in (WARM_UP, TIMING, SYNC_CALLS, TRACING)] == [4, 21, 1, 8]
    assert seen[-1] == DONE
    assert (phases.timed_from, phases.timed_until) == (5, 26)


def test_slow_steps_are_timed_for_ten_seconds() -> None:
    phases = Phases(wait=1, steps=2)
    _phases(phases, 2.0, 20)
    assert phases.timed_until - phases.timed_from == 6


def test_very_slow_steps_are_timed_three_times_and_one() -> None:
    phases = Phases(wait=1, steps=2)
    _phases(phases, 60.0, 20)
    assert phases.timed_until - phases.timed_from == 4


def test_a_rank_that_does_not_lead_waits_for_the_step_agreed_on() -> None:
    phases = Phases(wait=1, steps=2)
    assert set(_phases(phases, 0.01, 100, leads=False)[1:]) == {TIMING}
    assert phases.step(101, 1.01, agreed=103, leads=False) == TIMING
    assert phases.step(102, 1.02, agreed=103, leads=False) == TIMING
    assert phases.step(103, 1.03, agreed=103, leads=False) == SYNC_CALLS


def test_ranks_trace_the_same_steps_whatever_their_clocks() -> None:
    first, second = Phases(wait=5, steps=6, margin=2), Phases(wait=5, steps=6, margin=2)
    for count in range(1, 60):
        agreed = first.trace_from
        one = first.step(count, count * 0.1)
        other = second.step(count, 1000 + count * 0.1, agreed=agreed, leads=False)
        assert (one == TRACING) == (other == TRACING)
    assert (first.trace_from, first.trace_until) == (second.trace_from, second.trace_until)
