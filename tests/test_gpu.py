"""On a machine with an NVIDIA GPU: `check` finds it healthy, and `profile` names what is planted in a live job.

Run by hand: `pytest -m gpu tests/test_gpu.py`. With GPUDOCTOR_RECORD=DIR the run.json of each job is left there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs an NVIDIA GPU"),
]
JOB = Path(__file__).parent / "jobs" / "gpt.py"

PLANTED = [
    ("none", 1, set()),
    ("slow-loader", 1, {"DAT001", "DAT003"}),
    ("few-workers", 1, {"DAT001"}),
    ("fp32", 1, {"KRN001"}),
    ("launch-bound", 1, {"CPU001"}),
    ("checkpoint-stall", 1, {"CPU005"}),
    ("item-sync", 1, {"CPU002"}),
    ("log-stall", 1, {"CPU003"}),
    ("unaligned-vocab", 1, {"KRN005"}),
    ("ddp-gloo", 2, {"COM001", "COM008", "MEM007"}),
    ("ddp-straggler", 2, {"COM002", "COM008", "MEM007"}),
]


def _gpudoctor(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpudoctor", *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=200, **options)


@pytest.mark.parametrize(("fault", "processes", "codes"), PLANTED, ids=[fault for fault, _, _ in PLANTED])
def test_what_is_planted_in_a_live_job_is_named(fault: str, processes: int, codes: set[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--steps", "4", "--format", "json", "--output", str(tmp_path / "report.json"), "--out", str(run)]
    many = ["--nproc-per-node", str(processes)] if processes > 1 else []
    done = _gpudoctor("profile", *options, *many, str(JOB), fault)
    assert done.returncode in {0, 1}, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    if "GPUDOCTOR_RECORD" in os.environ:
        shutil.copy(run / "run.json", Path(os.environ["GPUDOCTOR_RECORD"]) / f"{fault}.json")
    assert codes <= {finding["code"] for finding in report["findings"]}
    if not codes:
        assert [finding["code"] for finding in report["findings"] if finding["severity"] != "info"] == []
    assert report["run"]["exit_code"] == 0
    assert all(sum(rank["shares"].values()) == pytest.approx(1, abs=0.01) for rank in report["run"]["ranks"])
    own = [line for line in done.stderr.splitlines() if line and not line.startswith("gpudoctor: ")]
    assert [line for line in own if "OMP_NUM_THREADS" not in line and set(line) != {"*"}] == []


def test_the_built_in_job_keeps_the_gpu_busy_and_its_loss_falls(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = _gpudoctor("profile", "--format", "json", "--output", str(report), "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] - 1
    assert json.loads(report.read_text())["run"]["shares"]["compute"] > 0.7


@pytest.mark.parametrize("level", [(), ("--quick",)])
def test_a_healthy_machine_is_found_healthy(level: tuple[str, ...]) -> None:
    report = json.loads(_gpudoctor("check", *level, "--format", "json").stdout)
    assert report["verdict"] == "ok"
    assert report["not_read"] == []
    assert len(report["snapshot"]["gpus"]["boards"]) >= 1
