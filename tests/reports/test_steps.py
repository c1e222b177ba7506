"""Where steps go, in figures."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.reports.steps import MANY, NAMES, apart, cells, outstanding, pace, parts
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, LATE, run_of


def test_every_share_has_a_name_in_the_order_of_precedence() -> None:
    assert tuple(NAMES) == StepShares.__struct_fields__


def test_parts_are_shares_of_the_length() -> None:
    told = {part.name: part.length_ms for part in parts(ALIKE, 100.0)}
    assert told["compute"] == pytest.approx(52)
    assert told["launch"] == 0
    assert all(part.length_ms is None for part in parts(ALIKE, None))


@given(st.lists(st.floats(0, 1), min_size=7, max_size=7).filter(lambda found: sum(found) > 0), st.integers(1, 120))
def test_cells_fill_the_bar_and_are_off_by_less_than_one(weights: list[float], width: int) -> None:
    shares = StepShares(**dict(zip(NAMES, (weight / sum(weights) for weight in weights), strict=True)))
    told = cells(shares, width)
    assert sum(told.values()) == width
    for name, number in told.items():
        assert abs(number - getattr(shares, name) * width) < 1 + 1e-9


def test_the_pace_tells_the_step_without_a_profiler() -> None:
    run = run_of([ALIKE], Snapshot())
    assert pace(run) == "82.1 ms · 195 samples/s · 12.5k tokens/s · timed 20 steps without a profiler, traced 5"
    slower = msgspec.structs.replace(run, step_ms=95.0)
    assert pace(slower).endswith("traced 5 (95.0 ms each)")
    assert pace(slower).startswith("82.1 ms")


def test_the_pace_tells_what_is_known_and_no_more() -> None:
    assert pace(Run()) == "no whole step was seen"
    assert pace(Run(step_ms=41.9, steps=3)) == "41.9 ms · traced 3 steps"
    assert pace(Run(step_ms=41.9)) == "41.9 ms"


def test_ranks_that_look_alike_are_not_apart() -> None:
    nearly = StepShares(compute=0.55, communication=0.17, copies=0.01, loader=0.22, host=0.05)
    assert not apart(run_of([ALIKE], Snapshot()))
    assert not apart(run_of([ALIKE, nearly], Snapshot()))
    assert apart(run_of([ALIKE, LATE], Snapshot()))
    assert not apart(Run(ranks=(Rank(rank=0), Rank(rank=1))))


def test_ranks_whose_steps_take_longer_are_apart() -> None:
    ranks = tuple(Rank(rank=number, shares=ALIKE, step_ms=100.0 + 10 * number) for number in range(2))
    assert apart(Run(ranks=ranks))


def test_a_few_ranks_are_all_shown() -> None:
    shown = outstanding(run_of([ALIKE] * MANY, Snapshot()))
    assert [(rank.rank, why) for rank, why in shown] == [(number, "") for number in range(MANY)]


def test_of_many_ranks_the_slowest_the_fastest_and_the_odd_ones_are_shown() -> None:
    run = run_of([LATE if number in {7, 40} else ALIKE for number in range(64)], Snapshot())
    lengths = {12: 90.0, 33: 80.0}
    ranks = tuple(msgspec.structs.replace(rank, step_ms=lengths.get(rank.rank, rank.step_ms)) for rank in run.ranks)
    shown = outstanding(msgspec.structs.replace(run, ranks=ranks))
    assert [(rank.rank, why) for rank, why in shown] == [(7, "odd"), (12, "slowest"), (33, "fastest"), (40, "odd")]


def test_of_a_thousand_odd_ranks_no_more_are_shown_than_of_a_few() -> None:
    assert len(outstanding(run_of([ALIKE, LATE] * 500, Snapshot()))) == MANY
