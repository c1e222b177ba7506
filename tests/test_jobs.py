"""Jobs as people write them, each with one planted fault or none, through the real command: what is found by code.

The scripts stand in jobs/; none of them knows of gpudoctor.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.gate import FOUND, NOT_CHECKED, OK
from gpudoctor.run import Run

pytestmark = pytest.mark.slow

JOBS = Path(__file__).parent / "jobs"
LIMIT_S = 120.0


@dataclass(frozen=True)
class Case:
    """One job: how it is called and what is wrong with it."""

    words: tuple[str, ...]
    """Script, or `-m` and module, and arguments."""
    planted: tuple[str, ...] = ()
    """Codes to be found; of a control none."""
    besides: tuple[str, ...] = ()
    """Codes that the fault brings along on some machines and not on others."""
    options: tuple[str, ...] = ()
    """Of gpudoctor."""
    exit_code: int = 0
    """Of the job."""
    prints: bool = False
    """What it prints is compared with a run without gpudoctor."""
    job: dict[str, Any] = field(default_factory=dict)
    """What the agent must have understood, fields of `Job`."""

    def __str__(self) -> str:
        return " ".join(self.words[:2])


TWO_RANKS = ("--nproc-per-node", "2")
CASES = (
    Case(("plain.py",), prints=True, job={"loop": "optimizer", "accumulation": 1}),
    Case(("trainer_class.py",)),
    Case(("accumulation.py",), job={"accumulation": 4, "samples_per_step": 64}),
    Case(("gan.py",), job={"accumulation": 1}),
    Case(("mixed_precision.py",)),
    Case(("lbfgs.py",)),
    Case(("by_hand.py",), job={"loop": "loader"}),
    Case(("ddp.py",), options=TWO_RANKS, prints=True),
    Case(("decodes_in_loop.py",), ("DAT001", "DAT003")),
    Case(("stream.py",), ("DAT001",)),
    Case(("reads_files.py",), ("DAT001", "DAT006")),
    Case(("short_epochs.py",), ("DAT005",), besides=("DAT001",)),
    Case(("callbacks.py",), ("CPU003",)),
    Case(("-m", "package.train"), ("CPU004",), prints=True),
    Case(
        ("arguments.py", "--steps=60", "--format", "pt", "-m", "0.9", "--shift=-1e-3", "--", "two words", "--wait"),
        ("CPU005",),
        prints=True,
    ),
    Case(("recompiles.py",), ("CPU006",), job={"compiled": True}),
    Case(("slows_down.py",), ("RUN004",), besides=("CPU003",), options=("--run-to-end",), prints=True),
    Case(("spawned.py",), ("COM006",), besides=("COM001",)),
    Case(("ddp.py", "straggler"), ("COM002",), besides=("CPU003",), options=TWO_RANKS),
    Case(("ddp.py", "tiny-buckets"), ("COM004",), besides=("COM001",), options=TWO_RANKS),
    Case(("ddp.py", "microsteps"), ("COM007",), besides=("COM001", "COM005"), options=TWO_RANKS),
    Case(("ddp.py", "unused"), ("ERR004", "RUN002"), options=TWO_RANKS, exit_code=1),
    Case(("ddp.py", "deadlock"), ("RUN003",), options=(*TWO_RANKS, "--stall-timeout", "10"), exit_code=1),
    Case(("exits.py",), ("RUN002",), exit_code=3, prints=True),
    Case(("raises.py", "memory"), ("ERR001", "RUN002"), exit_code=1),
    Case(("raises.py", "nan"), ("ERR009", "RUN002"), exit_code=1),
    Case(("eight_steps.py",), ("RUN001",)),
    Case(("own_profiler.py",), ("RUN001",), prints=True),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_planted_is_found_and_nothing_else(case: Case, tmp_path: Path) -> None:
    done = _profile(case, tmp_path)
    document = json.loads((tmp_path / "report.json").read_text())
    run = Run.from_json((tmp_path / "run" / "run.json").read_bytes())
    found = {finding["code"] for finding in document["findings"] if finding["severity"] != "info"}
    assert set(case.planted) <= found, done.stderr
    assert found <= {*case.planted, *case.besides}, document["findings"]
    assert run.exit_code == document["run"]["exit_code"] == case.exit_code
    assert list(run.stacks) == (["rank 0", "rank 1"] if "RUN003" in case.planted else [])
    errors = any(finding["severity"] == "error" for finding in document["findings"])
    measured = any(rank.step_ms is not None for rank in run.ranks)
    assert done.returncode == (FOUND if errors else OK if measured else NOT_CHECKED)
    _agent_is_well(run, tmp_path / "run")
    for rank in run.ranks:
        assert rank.job is not None
        assert {name: getattr(rank.job, name) for name in case.job} == case.job
    if case.prints:
        bare = _bare(case, tmp_path)
        assert bare.stdout.startswith(done.stdout)
        assert done.stdout == bare.stdout or run.ended_by_us


def _profile(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    doctor = [sys.executable, "-m", "gpudoctor", "profile", "--wait", "2", "--steps", "3", "--out", str(folder / "run")]
    report = ["--format", "json", "--output", str(folder / "report.json")]
    return _run([*doctor, *report, *case.options, *case.words], folder)


def _bare(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return _run([sys.executable, *(torchrun if case.options == TWO_RANKS else []), *case.words], folder)


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """One thread a process: the machine has few CPUs, and other tests run beside this one."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=JOBS, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def _agent_is_well(run: Run, folder: Path) -> None:
    assert not (folder / "agent-errors.log").exists()
    assert [rank.job.agent_error for rank in run.ranks if rank.job] == [None] * len(run.ranks)
    for shares in (run.shares, *(rank.shares for rank in run.ranks)):
        if shares is not None:
            assert sum(getattr(shares, name) for name in shares.__struct_fields__) == pytest.approx(1)
