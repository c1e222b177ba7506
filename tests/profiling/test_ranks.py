"""The four verdicts on planted jobs: who, and how many milliseconds, exactly; told apart from each other."""

from pathlib import Path

import pytest

from gpudoctor.profiling.job import analyze
from gpudoctor.run import Run
from tests.profiling.kineto_writer import COMPUTE_US, LAYERS, OPTIMIZER_US, Job, write

RANKS = [2, 3, 8, 64]
LAYOUTS = pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
SIZES = pytest.mark.parametrize("ranks", RANKS)


def run_of(tmp_path: Path, job: Job) -> Run:
    return analyze(write(job, tmp_path), workers=1)


def assert_nobody_late(run: Run) -> None:
    assert {(arrival.last, arrival.wait_ms, arrival.caused_ms) for arrival in run.arrivals} == {(0, 0.0, 0.0)}


def assert_one_late(run: Run, rank: int, milliseconds: float, doing: str) -> None:
    """Rank is last wherever anybody is, and costs each of the others so much a step."""
    for arrival in run.arrivals:
        late = arrival.rank == rank
        assert arrival.contested == run.steps
        assert arrival.last == (arrival.contested if late else 0)
        assert arrival.caused_ms == pytest.approx(milliseconds if late else 0)
        assert arrival.wait_ms == pytest.approx(0 if late else milliseconds)
        assert arrival.extra_ms == pytest.approx({doing: milliseconds} if late else {})


def assert_same_pace(run: Run) -> None:
    assert {(pace.slowdown, pace.work, pace.kernels, pace.excess_ms) for pace in run.paces} == {(1.0, 1.0, 1.0, 0.0)}


@SIZES
@LAYOUTS
def test_a_healthy_job_accuses_nobody(tmp_path: Path, ranks: int, old: bool) -> None:
    run = run_of(tmp_path, Job(ranks, old=old))
    assert run.steps == 3
    assert_nobody_late(run)
    assert_same_pace(run)
    assert [link.transfer_ms for link in run.links] == [3.0]


@SIZES
@LAYOUTS
def test_a_straggler_is_named_with_what_it_did(tmp_path: Path, ranks: int, old: bool) -> None:
    run = run_of(tmp_path, Job(ranks, old=old, late_us={ranks - 1: 7000}, clock_offset_s={0: 2.5, ranks - 1: -40.0}))
    assert_one_late(run, ranks - 1, 7.0, "host")
    assert_same_pace(run)
    assert [link.transfer_ms for link in run.links] == [3.0]


@SIZES
@LAYOUTS
def test_a_slow_gpu_is_named_with_how_slow_it_is(tmp_path: Path, ranks: int, old: bool) -> None:
    run = run_of(tmp_path, Job(ranks, old=old, gpu_slowdown={1: 2}))
    milliseconds = (COMPUTE_US + OPTIMIZER_US) / 1000
    assert_one_late(run, 1, milliseconds, "compute")
    assert [pace.slowdown for pace in run.paces] == [2.0 if pace.rank == 1 else 1.0 for pace in run.paces]
    assert {pace.work for pace in run.paces} == {1.0}
    assert run.paces[1].excess_ms == pytest.approx(milliseconds)


@SIZES
@LAYOUTS
def test_larger_work_is_no_slow_gpu(tmp_path: Path, ranks: int, old: bool) -> None:
    run = run_of(tmp_path, Job(ranks, old=old, larger={1: 3}))
    assert_one_late(run, 1, 2 * COMPUTE_US / 1000, "compute")
    assert run.paces[1].slowdown is None
    assert run.paces[1].work == pytest.approx((3 * COMPUTE_US + OPTIMIZER_US) / (COMPUTE_US + OPTIMIZER_US))
    assert run.paces[0].work == 1.0


@SIZES
@LAYOUTS
def test_more_work_is_no_slow_gpu(tmp_path: Path, ranks: int, old: bool) -> None:
    run = run_of(tmp_path, Job(ranks, old=old, more_layers={0: 2}))
    more = 2 * COMPUTE_US / LAYERS
    assert_one_late(run, 0, more / 1000, "compute")
    assert {pace.slowdown for pace in run.paces} == {1.0}
    assert run.paces[0].work == pytest.approx(1 + more / (COMPUTE_US + OPTIMIZER_US))
    assert run.paces[0].kernels == pytest.approx((4 * 5 + 1) / (4 * 3 + 1))


@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_a_slow_link_is_slow_transfer_and_nobody_waits(tmp_path: Path, ranks: int) -> None:
    run = run_of(tmp_path, Job(ranks, group_size=ranks // 2, slow_groups={1: 5.0}))
    assert_nobody_late(run)
    assert_same_pace(run)
    assert [(link.group, link.transfer_ms) for link in run.links] == [("0", 3.0), ("1", 15.0)]
    size = ranks // 2
    healthy = 3 * (25 << 20) / 3e-3 / 1e9 * 2 * (size - 1) / size
    assert [link.bus_bandwidth_gb_s for link in run.links] == pytest.approx([healthy, healthy / 5])


@SIZES
def test_old_traces_show_slow_transfer_without_a_bandwidth(tmp_path: Path, ranks: int) -> None:
    run = run_of(tmp_path, Job(ranks, old=True, slow_groups={0: 5.0}))
    assert_nobody_late(run)
    assert [(link.transfer_ms, link.bus_bandwidth_gb_s) for link in run.links] == [(15.0, None)]


def test_two_faults_at_once_are_both_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, Job(8, gpu_slowdown={2: 2}, larger={5: 2}, late_us={7: 9000}))
    assert [pace.rank for pace in run.paces if (pace.slowdown or 0) > 1.2] == [2]
    assert [pace.rank for pace in run.paces if (pace.work or 0) > 1.2] == [5]
    assert max(run.arrivals, key=lambda arrival: arrival.caused_ms).rank == 7


@LAYOUTS
def test_clocks_of_hosts_are_laid_on_one_axis(tmp_path: Path, old: bool) -> None:
    run = run_of(tmp_path, Job(4, old=old, late_us={3: 500}, clock_offset_s={0: 1.5, 1: 1.5, 2: -3600.0, 3: -3600.0}))
    assert [rank.clock_ahead_ns for rank in run.ranks] == [0, 0, -3_601_500_000_000, -3_601_500_000_000]


def test_a_missing_rank_is_missing_and_the_others_are_still_compared(tmp_path: Path) -> None:
    files = write(Job(4, late_us={2: 4000}), tmp_path)
    run = analyze([file for file in files if file.name != "rank1.json"], workers=1)
    assert run.world_size == 4
    assert run.missing == {"rank 1": "no trace of it"}
    assert [(arrival.rank, arrival.caused_ms) for arrival in run.arrivals] == [(0, 0.0), (2, 4.0), (3, 0.0)]


def test_recorded_straggler_waits_overlap_and_count_once() -> None:
    """gloo reduces four buckets at once, so all of them wait for the same 60 ms."""
    recorded = Path(__file__).parent.parent / "recorded/traces"
    run = analyze([recorded / f"ddp-straggler.rank{rank}.json.gz" for rank in range(2)], workers=1)
    first, late = run.arrivals
    assert (late.last, late.contested, first.last) == (12, 12, 0)
    assert first.wait_ms == pytest.approx(62, abs=5)
    assert late.extra_ms["host"] == pytest.approx(62, abs=2)
    assert run.links[0].transfer_ms + first.wait_ms == pytest.approx(124, abs=3)
