"""Jobs run live on an NVIDIA H200 (tests/jobs/gpt.py, torch 2.11.0+cu130, 2026-12): what is told of them."""

from pathlib import Path

import msgspec
import pytest

from gpudoctor.findings import Finding, Severity, diagnose
from gpudoctor.rules.every import RUN_RULES
from gpudoctor.run import Run

RUNS = Path(__file__).parent.parent / "recorded" / "runs"
MUST = {
    "healthy": set(),
    "slow-loader": {"DAT001", "DAT003"},
    "few-workers": {"DAT001"},
    "fp32": {"KRN001"},
    "launch-bound": {"CPU001"},
    "checkpoint-stall": {"CPU005"},
    "item-sync": {"CPU002"},
    "log-stall": {"CPU003"},
    "unaligned-vocab": {"KRN005"},
    "ddp-gloo": {"COM001", "COM008", "MEM007"},
    "ddp-straggler": {"COM002", "COM008", "MEM007"},
}
every_run = pytest.mark.parametrize("name", MUST)


def _run(name: str) -> Run:
    return Run.from_json((RUNS / f"{name}.json").read_bytes())


def _found(name: str) -> tuple[Finding, ...]:
    return diagnose(_run(name), RUN_RULES).findings


@every_run
def test_what_was_planted_is_found(name: str) -> None:
    assert MUST[name] <= {finding.code for finding in _found(name)}


def test_nothing_is_found_in_the_healthy_job() -> None:
    assert [finding.code for finding in _found("healthy") if finding.severity is not Severity.INFO] == []


@every_run
def test_the_shares_of_every_rank_sum_to_one(name: str) -> None:
    for rank in _run(name).ranks:
        assert rank.shares is not None
        assert sum(msgspec.structs.asdict(rank.shares).values()) == pytest.approx(1, abs=0.01)


@every_run
def test_the_step_is_the_one_timed_without_a_profiler(name: str) -> None:
    for rank in _run(name).ranks:
        assert rank.job is not None
        assert rank.step_ms == rank.job.timed_step_ms
        assert rank.job.agent_error is None


def test_the_profiler_s_own_cost_does_not_make_a_healthy_job_look_launch_bound() -> None:
    (rank,) = _run("healthy").ranks
    assert rank.traced_step_ms is not None
    assert rank.step_ms is not None
    assert rank.traced_step_ms > 1.2 * rank.step_ms
    assert rank.shares is not None
    assert rank.shares.compute > 0.9


def test_the_straggler_is_named_with_its_delay() -> None:
    (finding,) = [finding for finding in _found("ddp-straggler") if finding.code == "COM002"]
    assert finding.where == "rank 1"
    assert finding.cost is not None
    assert finding.cost.share_of_step * finding.cost.step_ms_now == pytest.approx(60, rel=0.15)


def test_memory_was_watched_by_rank_from_outside() -> None:
    watch = _run("ddp-gloo").watch
    assert watch is not None
    (gpu,) = watch.gpus
    assert sorted(holder.rank for holder in gpu.holders if holder.rank is not None) == [0, 1]
