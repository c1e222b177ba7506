"""What becomes of a job that was run with the agent in it: one Run, whatever happened."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.facts.run import StepShares
from gpudoctor.profiling.launch import Plan, command_line
from gpudoctor.profiling.profile import profile, without_profiler
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

JOBS = Path(__file__).parent.parent / "jobs"


def _shares(shares: StepShares) -> dict[str, float]:
    return {name: round(value, 3) for name, value in msgspec.structs.asdict(shares).items() if value}


def test_the_device_keeps_its_milliseconds_and_the_idle_rest_shrinks() -> None:
    """A launch-bound job as it was on an H200: 44.3 ms traced, 21.4 ms without the profiler."""
    traced = StepShares(compute=0.04, launch=0.72, host=0.24)
    assert _shares(without_profiler(traced, 44.3, 21.4)) == {"compute": 0.083, "launch": 0.688, "host": 0.229}


def test_a_device_that_is_busy_all_the_time_stays_so() -> None:
    assert _shares(without_profiler(StepShares(compute=0.98, launch=0.02), 40.4, 39.0)) == {"compute": 1.0}


def test_idle_time_that_the_trace_did_not_see_is_the_host_s() -> None:
    assert _shares(without_profiler(StepShares(compute=1.0), 10.0, 20.0)) == {"compute": 0.5, "host": 0.5}


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.0, 1.1, 5.0])
def test_shares_still_sum_to_one(factor: float) -> None:
    shares = StepShares(compute=0.3, communication=0.1, copies=0.1, loader=0.2, sync=0.1, launch=0.1, host=0.1)
    assert sum(msgspec.structs.asdict(without_profiler(shares, 10 * factor, 10)).values()) == pytest.approx(1)


def _run(tmp_path: Path, body: str, **options: Any) -> Run:
    script = tmp_path / "job.py"
    script.write_text(body)
    folder = tmp_path / "run"
    folder.mkdir()
    plan = Plan(command_line(sys.executable, [str(script)]), folder, **options)
    return profile(plan, {**os.environ, "OMP_NUM_THREADS": "1"}, Snapshot())


LOOP = """
import torch
weights = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(weights.parameters(), lr=0.01)
for step in range(1000):
    weights(torch.randn(64, 256)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    {after}
"""


def test_the_run_is_saved_and_its_shares_sum_to_one(tmp_path: Path) -> None:
    run = _run(tmp_path, LOOP.format(after="pass"), wait=2, steps=3)
    assert Run.from_json((tmp_path / "run" / "run.json").read_bytes()) == run
    assert run.shares is not None
    assert sum(msgspec.structs.asdict(run.shares).values()) == pytest.approx(1, abs=0.01)
    assert (run.exit_code, run.ended_by_us, run.world_size, run.missing) == (0, True, 1, {})
    (rank,) = run.ranks
    assert rank.step_ms == rank.job.timed_step_ms if rank.job else False


def test_a_job_that_fails_early_tells_why(tmp_path: Path) -> None:
    run = _run(tmp_path, LOOP.format(after="if step == 3: raise RuntimeError('CUDA out of memory, planted')"))
    assert run.exit_code == 1
    assert run.error_text is not None
    assert run.error_text.rstrip().endswith("CUDA out of memory, planted")
    assert run.ended_by_us is False


def test_a_job_that_never_trains_is_a_run_without_ranks(tmp_path: Path) -> None:
    run = _run(tmp_path, "print('no torch here')")
    assert (run.ranks, run.exit_code, run.step_ms) == ((), 0, None)
