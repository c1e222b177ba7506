"""Rules on how ranks differ."""

import msgspec
import pytest

from gpudoctor.facts.job import Job
from gpudoctor.facts.run import Arrival, Collectives, LaunchStats, Pace, Rank
from gpudoctor.rules import ranks
from gpudoctor.run import Run


def _run(*, device: str = "NVIDIA H200") -> Run:
    return Run(
        step_ms=100.0,
        ranks=tuple(
            Rank(rank=number, device=device, step_ms=100.0, launches=None if device == "cpu" else LaunchStats())
            for number in range(2)
        ),
    )


WAITS = Arrival(rank=0, matched=30, contested=10, wait_ms=20.0, exposed_wait_ms=15.0)
LATE = Arrival(rank=1, matched=30, contested=10, last=9, caused_ms=20.0, extra_ms={"host": 18.0, "launch": 1.0})


def test_the_straggler_is_named_with_what_it_does() -> None:
    late, doing = ranks.straggler_rank.judge(msgspec.structs.replace(_run(), arrivals=(WAITS, LATE)))
    assert (late.where, late.seen) == ("rank 1", "in 9 of 10 collectives; 20% of the step, 20 of 100 ms")
    assert doing.what == "longer than the others in Python code on the host"
    assert late.cost is not None
    assert late.cost.step_ms_at_best == pytest.approx(85.0)  # of the others' wait 15 ms are in plain view


@pytest.mark.parametrize(
    "late",
    [
        msgspec.structs.replace(LATE, last=5),
        msgspec.structs.replace(LATE, caused_ms=4.0),
        msgspec.structs.replace(LATE, wait_ms=19.0),
        msgspec.structs.replace(LATE, extra_ms={}),
    ],
    ids=["seldom last", "cheap", "waits as long itself", "no reason"],
)
def test_jitter_makes_no_straggler(late: Arrival) -> None:
    assert not list(ranks.straggler_rank.judge(msgspec.structs.replace(_run(), arrivals=(WAITS, late))))


def test_a_rank_whose_cpu_others_take_is_no_straggler() -> None:
    one, other = _run().ranks
    taken = msgspec.structs.replace(other, job=Job(cpu_wait_ms=16.0))
    run = msgspec.structs.replace(_run(), ranks=(one, taken), arrivals=(WAITS, LATE))
    assert not list(ranks.straggler_rank.judge(run))


SLOW = Pace(rank=1, slowdown=1.3, alike=1.0, work=1.0, kernels=1.0, excess_ms=20.0)
BUSY = Pace(rank=1, slowdown=1.0, alike=0.9, work=1.3, kernels=1.2, excess_ms=20.0)


def test_a_slow_gpu_is_no_straggler() -> None:
    run = msgspec.structs.replace(_run(), arrivals=(WAITS, LATE), paces=(Pace(rank=0), SLOW))
    (found,) = ranks.slow_gpu.judge(run)
    assert (found.where, found.seen) == ("rank 1", "1.30 × the other ranks' time, 20 ms more a step")
    assert not list(ranks.straggler_rank.judge(run))
    assert not list(ranks.uneven_work.judge(run))


def test_uneven_work_is_no_slow_gpu() -> None:
    run = msgspec.structs.replace(_run(), arrivals=(WAITS, LATE), paces=(Pace(rank=0), BUSY))
    (found,) = ranks.uneven_work.judge(run)
    assert found.where == "rank 1"
    assert not list(ranks.slow_gpu.judge(run))
    assert not list(ranks.straggler_rank.judge(run))


def test_gpus_of_one_node_differ_a_little() -> None:
    run = msgspec.structs.replace(_run(), paces=(Pace(rank=0), msgspec.structs.replace(SLOW, slowdown=1.05)))
    assert not list(ranks.slow_gpu.judge(run))


def test_a_cpu_job_has_no_slow_gpu() -> None:
    assert not list(ranks.slow_gpu.judge(msgspec.structs.replace(_run(device="cpu"), paces=(SLOW,))))


def test_stages_of_a_pipeline_differ_by_design() -> None:
    series = Collectives(group="0", names=("send", "recv"))
    run = msgspec.structs.replace(
        _run(), ranks=(Rank(rank=0, collectives=(series,)), Rank(rank=1)), paces=(Pace(rank=0), BUSY)
    )
    assert not list(ranks.uneven_work.judge(run))
