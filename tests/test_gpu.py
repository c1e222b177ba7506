"""On a machine with an NVIDIA GPU: `check` finds it healthy, and `profile` names what is planted in a live job.

Run by hand: `pytest -m gpu tests/test_gpu.py`. With GPUDOCTOR_RECORD=DIR the run.json of each job is left there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
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


H200 = {"fp32": 50, "tf32": 394, "bf16": 692, "fp16": 691}
"""TFLOP/s at 8192, measured on one H200 in 2026-12."""


def test_a_healthy_machine_works_as_fast_as_it_should(tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    began = time.monotonic()
    done = _gpudoctor("check", "--deep", "--format", "json", "--output", str(saved))
    duration_s = time.monotonic() - began
    report = json.loads(saved.read_text())
    if "GPUDOCTOR_RECORD" in os.environ:
        shutil.copy(saved, Path(os.environ["GPUDOCTOR_RECORD"]) / "deep.json")
    assert [finding["code"] for finding in report["findings"] if finding["severity"] != "info"] == [], done.stderr
    measured = report["snapshot"]["measured"]
    assert "failures" not in measured
    assert all(row["ok"] or row.get("skipped") for row in measured["features"])
    boards = report["snapshot"]["gpus"]["boards"]
    assert duration_s < (60 if len(boards) == 1 else 180)
    assert {row["gpu"] for row in measured["gemm"]} == {board["index"] for board in boards}
    if not all(board["name"] == "NVIDIA H200" for board in boards):
        return
    for row in measured["gemm"]:
        if row["format"] in H200:
            assert row["tflops"] == pytest.approx(H200[row["format"]], rel=0.1)
    for row in measured["memory"]:
        assert row["gb_s"] == pytest.approx(4149, rel=0.1)
    for row in measured["host_links"]:
        if row.get("pinned"):
            assert row["gb_s"] == pytest.approx(55, rel=0.1)


@pytest.mark.parametrize("level", [(), ("--quick",)])
def test_a_healthy_machine_is_found_healthy(level: tuple[str, ...]) -> None:
    report = json.loads(_gpudoctor("check", *level, "--format", "json").stdout)
    assert report["verdict"] == "ok"
    assert report["not_read"] == []
    assert len(report["snapshot"]["gpus"]["boards"]) >= 1
