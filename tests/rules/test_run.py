"""Rules on the run as a whole."""

import msgspec
import pytest

from gpudoctor.facts.job import Job
from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.findings import Severity, diagnose
from gpudoctor.rules import run as rules
from gpudoctor.run import Run


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (None, "no trace of it"),
        (Job(), "no step was seen"),
        (Job(steps_seen=4), "ended in the warm-up, after 4 steps"),
        (Job(steps_seen=40, timed_steps=20), "before its trace was whole"),
        (Job(steps_seen=40, profiler_busy=True), "torch.profiler itself"),
        (Job(agent_error="Traceback …\nKeyError: 'x'"), "KeyError: 'x'"),
    ],
    ids=["no record", "no step", "warm-up", "cut short", "busy", "own fault"],
)
def test_what_could_not_be_measured_is_told_with_its_reason(job: Job | None, reason: str) -> None:
    (found,) = rules.too_few_steps.judge(Run(ranks=(Rank(rank=0, job=job),)))
    assert reason in found.seen


def test_ranks_with_the_same_reason_are_told_together() -> None:
    run = Run(ranks=(Rank(rank=0, job=Job()), Rank(rank=1, job=Job()), Rank(rank=2, steps=3, shares=StepShares())))
    (found,) = rules.too_few_steps.judge(run)
    assert found.where == "ranks 0, 1"


def test_a_job_no_process_of_which_trained_is_told() -> None:
    assert list(rules.too_few_steps.judge(Run(command=("python", "hello.py"))))
    assert not list(rules.too_few_steps.judge(Run()))


def test_a_trace_without_step_marks_is_measured_all_the_same() -> None:
    (found,) = rules.too_few_steps.judge(Run(ranks=(Rank(rank=0, shares=StepShares(compute=1.0)),)))
    assert found.severity is Severity.INFO


def test_a_failed_script_is_told_with_its_last_line() -> None:
    code, line = rules.script_failed.judge(Run(exit_code=1, error_text="Traceback …\nValueError: no data\n"))
    assert (code.seen, line.seen) == ("1", "ValueError: no data")


def test_a_signal_is_named() -> None:
    (found,) = rules.script_failed.judge(Run(exit_code=137))
    assert found.seen == "137 (SIGKILL)"


@pytest.mark.parametrize(
    "run", [Run(exit_code=0), Run(exit_code=143, ended_by_us=True), Run(exit_code=130), Run()], ids=str
)
def test_a_job_that_ended_well_or_was_ended_is_no_failure(run: Run) -> None:
    assert not list(rules.script_failed.judge(run))


def test_the_ranks_of_a_hung_job_are_grouped_by_where_they_stand() -> None:
    waiting = "wait (distributed.py:10)\nall_reduce (train.py:20)\n\nworker (threading.py:1)"
    stacks = {"rank 0": waiting, "rank 1": "sleep (train.py:33)\nmain (train.py:40)", "rank 2": waiting}
    alone, others = list(rules.no_progress.judge(Run(stalled_s=120.0, stacks=stacks)))[1:]
    assert (alone.what, alone.seen) == ("rank 1 in", "sleep (train.py:33) ← main (train.py:40)")
    assert (others.what, others.seen) == ("rank 0, rank 2 in", "wait (distributed.py:10) ← all_reduce (train.py:20)")


def test_a_hang_or_a_failure_explains_that_nothing_was_measured() -> None:
    ranks = (Rank(rank=0, job=Job()),)
    for run in (Run(stalled_s=60.0, ranks=ranks, exit_code=137), Run(exit_code=1, ranks=ranks)):
        (found,) = diagnose(run, rules.RULES).findings
        assert found.consequences == ("RUN001",)


def _times(*times: float) -> Run:
    return Run(ranks=(Rank(rank=0, job=Job(step_times_ms=times)),))


NOISE = [(at * 7919 % 13) / 10 for at in range(300)]


def test_a_step_time_that_rises_is_told() -> None:
    (found,) = rules.slowing_down.judge(_times(*(100 + at / 10 + NOISE[at] for at in range(300))))
    assert found.seen == "106 → 126 ms over 300 steps"
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(106, abs=1)


@pytest.mark.parametrize(
    "times",
    [
        [100 + at for at in range(59)],
        [100 + NOISE[at] for at in range(300)],
        [100 + NOISE[at] + (400 if at % 25 == 0 else 0) for at in range(300)],
        [100 + NOISE[at] + (60 if 100 <= at < 200 else 20 if at >= 200 else 0) for at in range(300)],
        [120 - at / 10 for at in range(300)],
        [10 + (at * 7919 % 97) for at in range(90)],
    ],
    ids=["short", "steady", "checkpoints", "passing", "faster", "noise"],
)
def test_steady_noisy_or_short_runs_do_not_slow_down(times: list[float]) -> None:
    assert not list(rules.slowing_down.judge(_times(*times)))


def test_a_clock_that_fell_meanwhile_is_told_beside_it() -> None:
    board = WatchedGpu(
        index=0,
        clock_sm_mhz=(1980,) * 5 + (1500,) * 10,
        utilization_ratio=(1.0,) * 15,
        holders=(Holder(pid=1, rank=0, peak_bytes=1),),
    )
    run = msgspec.structs.replace(_times(*(100 + at / 10 for at in range(300))), watch=Watch(gpus=(board,)))
    assert [found.seen for found in rules.slowing_down.judge(run)][1:] == ["1980 → 1500 MHz"]
