"""Rules on the host's part of a step."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.job import Job, Pause, SyncPlace
from gpudoctor.facts.run import CopyStats, Gap, LaunchStats, Rank, StepShares, SyncCall
from gpudoctor.findings import Severity
from gpudoctor.rules import host_time
from gpudoctor.run import Run

AT_ONCE = LaunchStats(count=2000, median_ns=9000, median_delay_ns=10_000)
QUEUED = LaunchStats(count=2000, median_ns=9000, median_delay_ns=12_000_000)


def _run(shares: StepShares, launches: LaunchStats | None = QUEUED, **fields: Any) -> Run:
    rank = Rank(
        rank=0,
        device="cpu" if launches is None else "NVIDIA H200",
        steps=2,
        step_ms=100.0,
        shares=shares,
        window_ns=(0, 200_000_000),
        busy_ns=int(2e8 * shares.busy),
        launches=launches,
        **fields,
    )
    return Run(ranks=(rank,), steps=2, step_ms=100.0, shares=shares)


LAUNCHING = StepShares(compute=0.3, launch=0.6, host=0.1)


def test_a_device_that_waits_for_each_launch_is_launch_bound() -> None:
    (found,) = host_time.launch_bound.judge(_run(LAUNCHING, AT_ONCE))
    assert found.seen == "60% of the step, 60 of 100 ms; 1000 launches a step, 9 µs each"
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(40.0)


def test_what_the_profiler_adds_to_a_launch_is_not_counted() -> None:
    assert not list(host_time.launch_bound.judge(_run(LAUNCHING, AT_ONCE, job=Job(timed_step_ms=45.0))))


def test_a_queue_of_launches_or_a_cpu_job_is_not_launch_bound() -> None:
    assert not list(host_time.launch_bound.judge(_run(LAUNCHING, QUEUED)))
    assert not list(host_time.launch_bound.judge(_run(LAUNCHING, None)))


def _item(idle_ns: int = 4_000_000, blocked_ns: int = 40_000_000) -> SyncCall:
    return SyncCall(
        name="aten::_local_scalar_dense",
        call="cudaStreamSynchronize",
        count=16,
        blocked_ns=blocked_ns,
        idle_ns=idle_ns,
    )


def test_reading_numbers_in_the_loop_is_told_with_its_line() -> None:
    job = Job(syncs=(SyncPlace(where="model.py:12", count=8), SyncPlace(where="train.py:40")))
    (found,) = host_time.synchronising_calls.judge(
        _run(StepShares(compute=0.89, sync=0.01, launch=0.1), syncs=(_item(),), job=job)
    )
    assert (found.where, found.severity) == ("model.py:12", Severity.WARNING)
    assert "train.py:40 (1 ×)" in found.seen


def test_the_share_not_the_count_decides_how_bad_it_is() -> None:
    (found,) = host_time.synchronising_calls.judge(
        _run(StepShares(compute=0.97, sync=0.01, launch=0.02), syncs=(_item(),))
    )
    assert found.severity is Severity.INFO


def test_waits_that_leave_no_gap_cost_nothing() -> None:
    assert not list(host_time.synchronising_calls.judge(_run(StepShares(compute=1.0), syncs=(_item(),))))
    assert not list(host_time.synchronising_calls.judge(_run(StepShares(compute=0.8, launch=0.2))))


def test_the_copy_of_a_pageable_batch_is_another_finding() -> None:
    copy = CopyStats(direction="HtoD", source="Pageable", target="Device", count=4)
    call = SyncCall(name="aten::to", call="cudaMemcpyAsync", count=4, blocked_ns=40_000_000, idle_ns=9_000_000)
    run = _run(StepShares(compute=0.8, launch=0.2), syncs=(call,), copies=(copy,))
    assert not list(host_time.synchronising_calls.judge(run))


STALLED = StepShares(compute=0.6, host=0.4)
GAPS = (Gap(start_ns=0, duration_ns=40_000_000, cause="host"), Gap(start_ns=0, duration_ns=38_000_000, cause="host"))


@pytest.mark.parametrize("launches", [QUEUED, None], ids=["gpu", "cpu"])
def test_long_gaps_of_the_host_are_a_stall(launches: LaunchStats | None) -> None:
    (found,) = host_time.host_stall.judge(_run(STALLED, launches, gaps=GAPS))
    assert "the longest gap 40 ms, outside of any operator" in found.seen
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(61.0)


def test_a_host_that_is_merely_slow_between_launches_does_not_stall() -> None:
    gaps = tuple(Gap(start_ns=0, duration_ns=900_000, cause="host") for _ in range(50))
    assert not list(host_time.host_stall.judge(_run(STALLED, gaps=gaps)))


def _paused(kind: str, per_step_ms: float, count: int = 2) -> Job:
    pause = Pause(kind=kind, count=count, total_ms=900.0, longest_ms=50.0, per_step_ms=per_step_ms, where="train.py:50")
    return Job(timed_step_ms=100.0, pauses=(pause,))


def test_garbage_collection_the_agent_recorded_takes_the_place_of_the_stall() -> None:
    run = _run(STALLED, gaps=GAPS, job=_paused("gc", 38.0))
    (found,) = host_time.gc_pauses.judge(run)
    assert found.seen == "36% of the step, 35.9 of 100 ms; 2 collections, the longest 50 ms"
    assert not list(host_time.host_stall.judge(run))


def test_one_long_collection_in_a_run_is_nobody_s_loss() -> None:
    pause = Pause(kind="gc", count=30, total_ms=930.0, longest_ms=900.0, per_step_ms=46.0)
    run = _run(STALLED, job=Job(timed_step_ms=100.0, pauses=(pause,)))
    assert not list(host_time.gc_pauses.judge(run))


def test_time_in_which_others_had_the_cpu_is_no_stall_of_the_host() -> None:
    assert list(host_time.host_stall.judge(_run(STALLED, gaps=GAPS, job=Job(timed_step_ms=100.0, cpu_wait_ms=5.0))))
    taken = _run(STALLED, gaps=GAPS, job=Job(timed_step_ms=100.0, cpu_wait_ms=32.0))
    assert not list(host_time.host_stall.judge(taken))


def test_workers_that_start_are_told_by_their_own_finding() -> None:
    assert not list(host_time.host_stall.judge(_run(STALLED, gaps=GAPS, job=_paused("workers", 35.0))))


def test_garbage_collection_behind_a_full_queue_costs_nothing() -> None:
    assert not list(host_time.gc_pauses.judge(_run(StepShares(compute=1.0), job=_paused("gc", 38.0))))
    assert not list(host_time.gc_pauses.judge(_run(STALLED)))


def test_saving_is_told_with_its_line() -> None:
    (found,) = host_time.checkpoint_stall.judge(_run(STALLED, job=_paused("save", 30.0)))
    assert (found.where, found.confidence) == ("train.py:50", "certain")
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(70.0)


def test_one_checkpoint_does_not_tell_how_often_there_is_one() -> None:
    (found,) = host_time.checkpoint_stall.judge(_run(STALLED, job=_paused("save", 30.0, count=1)))
    assert found.confidence == "likely"


SAVED = CopyStats(
    direction="DtoH", source="Device", target="Pageable", count=200, exposed_ns=30_000_000, bytes=2 * 2**30
)


def test_many_tensors_copied_to_the_host_look_like_saving() -> None:
    run = _run(STALLED, gaps=GAPS, copies=(SAVED,))
    (found,) = host_time.checkpoint_stall.judge(run)
    assert found.confidence == "likely"
    assert not list(host_time.host_stall.judge(run))


def test_a_few_metrics_read_or_a_job_that_never_saved_do_not() -> None:
    few = msgspec.structs.replace(SAVED, count=3)
    assert not list(host_time.checkpoint_stall.judge(_run(STALLED, gaps=GAPS, copies=(few,))))
    never = _run(STALLED, gaps=GAPS, copies=(SAVED,), job=Job())
    assert not list(host_time.checkpoint_stall.judge(never))
    assert not list(host_time.checkpoint_stall.judge(_run(STALLED, job=_paused("save", 1.0))))


def test_graphs_compiled_after_the_warm_up_are_told() -> None:
    (found,) = host_time.recompilation.judge(_run(STALLED, job=Job(recompiles=3, timed_steps=20)))
    assert found.seen == "3 in 20 steps"
    gaps = (Gap(start_ns=0, duration_ns=40_000_000, cause="host", during="_compile.compile_inner (dynamo_timed)"),)
    (found,) = host_time.recompilation.judge(_run(STALLED, gaps=gaps))
    assert found.confidence == "likely"


def test_a_job_without_new_graphs_is_not_compiling() -> None:
    assert not list(host_time.recompilation.judge(_run(STALLED, gaps=GAPS, job=Job(recompiles=0))))
