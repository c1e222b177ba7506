"""A machine that was made to work, at a terminal of eighty columns."""

import msgspec
import pytest

from gpudoctor.facts.measured import GemmRate, Measured, MemoryRate, StageFailure
from gpudoctor.findings import diagnose
from gpudoctor.reports import markdown, terminal
from gpudoctor.reports.document import Document
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.snapshot import Snapshot


def test_eight_gpus_that_work_well_take_few_lines(well: Document, worked: Snapshot) -> None:
    text = terminal.render(msgspec.structs.replace(well, snapshot=worked))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 18
    told = " ".join(text.split())
    assert (
        "GEMM fp32 49.2, TF32 388, bf16 682, fp16 681 TFLOP/s, memory 2,894 GB/s, host 55.0 GB/s, launch 7.5 µs" in told
    )
    assert "56 peer copies intact at 390 GB/s, nccl all-reduce 1 GiB over 8: bus 470 GB/s" in told


def test_one_slow_gpu_and_one_stage_that_died_stand_in_eighty_columns(well: Document, worked: Snapshot) -> None:
    assert worked.measured is not None
    gemm = tuple(
        msgspec.structs.replace(row, tflops=row.tflops * 0.7) if row.gpu == 5 and row.tflops else row
        for row in worked.measured.gemm
    )
    died = (StageFailure(stage="peer", gpus=(2, 3), signal=11, stack="measure_child.py line 400 in peer"),)
    sick = msgspec.structs.replace(worked, measured=msgspec.structs.replace(worked.measured, gemm=gemm, failures=died))
    found = diagnose(sick, MACHINE_RULES).findings
    document = msgspec.structs.replace(well, snapshot=sick, findings=found, verdict="findings")
    text = terminal.render(document)
    assert "PRE006 slow-gemm · GPU 5" in text
    assert "TOR016 operation-fails · GPU 2, 3" in text
    commands = {fix.command for finding in found for fix in finding.fix}
    assert [line for line in text.splitlines() if len(line) > 80 and line.strip() not in commands] == []
    assert "slow-gemm" in markdown.render(document)


@pytest.mark.parametrize(("rate", "told"), [(0.0345, "34.5"), (0.0005, "0.5")])
def test_a_cpu_s_rate_is_told_in_its_own_unit(well: Document, rate: float, told: str) -> None:
    measured = Measured(gemm=(GemmRate(format="fp32", size=1024, tflops=rate),), memory=(MemoryRate(gb_s=8.0),))
    text = terminal.render(msgspec.structs.replace(well, snapshot=Snapshot(measured=measured)))
    assert f"GEMM fp32 {told} GFLOP/s, memory 8 GB/s" in text
