"""Shapes of the charts."""

import msgspec
import pytest

from gpudoctor.facts.run import Rank, Segment
from gpudoctor.facts.watch import Watch, WatchedGpu
from gpudoctor.reports.charts import boards, ticks, timeline
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, LATE, run_of

MS = 1_000_000


def _rank(number: int, start_ms: int, base_ms: int | None, ahead_ms: int = 0) -> Rank:
    return Rank(
        rank=number,
        timeline=(Segment(kind="compute", start_ns=start_ms * MS, duration_ns=100 * MS),),
        clock_base_ns=None if base_ms is None else base_ms * MS,
        clock_ahead_ns=ahead_ms * MS,
    )


def _lefts(*ranks: Rank) -> list[float]:
    told = timeline(ranks)
    assert told is not None
    return [lane.blocks[0].left for lane in told.lanes]


def test_steps_stand_where_the_clocks_say() -> None:
    assert _lefts(_rank(0, 500, 1000), _rank(1, 400, 1125)) == pytest.approx([0, 20])
    assert _lefts(_rank(0, 500, 1000), _rank(1, 400, 9125, ahead_ms=8000)) == pytest.approx([0, 20])


def test_steps_of_unknown_clocks_all_start_at_zero() -> None:
    assert _lefts(_rank(0, 500, None), _rank(1, 400, None)) == [0, 0]


def test_steps_that_share_no_moment_all_start_at_zero() -> None:
    assert _lefts(_rank(0, 0, 0), _rank(1, 500, 0)) == [0, 0]


def test_the_long_gaps_in_the_step_are_numbered_through() -> None:
    told = timeline(run_of([ALIKE, LATE], Snapshot()).ranks)
    assert told is not None
    assert [(gap.number, gap.rank, gap.gap.cause) for lane in told.lanes for gap in lane.gaps] == [
        (1, 0, "loader"),
        (2, 1, "loader"),
    ]
    first = told.lanes[0].gaps[0]
    assert first.left == pytest.approx(11, abs=0.2)


def test_short_pieces_are_drawn_and_not_pointed_at() -> None:
    (rank,) = run_of([ALIKE], Snapshot()).ranks
    last = rank.timeline[-1]
    short = Segment(kind="sync", start_ns=last.start_ns + last.duration_ns, duration_ns=MS // 10)
    told = timeline([msgspec.structs.replace(rank, timeline=(*rank.timeline, short))])
    assert told is not None
    assert "sync" in told.lanes[0].paths
    assert "sync" not in {block.kind for block in told.lanes[0].blocks}


def test_without_timelines_there_is_no_chart() -> None:
    assert timeline([]) is None
    assert timeline([Rank(rank=0)]) is None


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        (82.1, ["0 ms", "20", "40", "60"]),
        (1000, ["0 ms", "200", "400", "600", "800"]),
        (0.5, ["0 ms", "0.1", "0.2", "0.3", "0.4"]),
        (0, []),
    ],
)
def test_marks_of_an_axis_are_round(length: float, texts: list[str]) -> None:
    told = list(ticks(length, "ms"))
    assert [text for _, text in told][: len(texts)] == texts
    assert all(0 <= place <= 97 for place, _ in told)


def test_a_line_breaks_where_there_was_no_answer() -> None:
    gpu = WatchedGpu(
        index=0, memory_total_bytes=100, memory_used_bytes=(0, 50, None, 100, 100), utilization_ratio=(None,) * 5
    )
    (board,) = boards(Watch(at_s=(0, 1, 2, 3, 4), gpus=(gpu, WatchedGpu(index=1))))
    assert board.memory.pieces == ("0.00,100.00 25.00,50.00", "75.00,0.00 100.00,0.00")
    assert board.utilization.pieces == ()
    assert board.utilization_mean is None


def test_one_sample_makes_no_line() -> None:
    assert list(boards(Watch(at_s=(1.0,), gpus=(WatchedGpu(index=0, memory_used_bytes=(5,)),)))) == []
