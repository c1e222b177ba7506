"""Straggler, slow link, slow GPU and uneven work are told apart, for few ranks and many, in old and new traces."""

from pathlib import Path

import pytest

from gpudoctor.findings import Finding, diagnose
from gpudoctor.profiling.job import analyze
from gpudoctor.rules.every import RUN_RULES
from tests.profiling.kineto_writer import Job, write

VERDICTS = {"COM002", "COM003", "COM009", "COM010"}
sizes = pytest.mark.parametrize("ranks", [2, 3, 8])
layouts = pytest.mark.parametrize("old", [False, True], ids=["new", "old"])


def _verdicts(job: Job, folder: Path) -> dict[str, Finding]:
    found = diagnose(analyze(write(job, folder), workers=1), RUN_RULES).findings
    return {finding.code: finding for finding in found if finding.code in VERDICTS}


def _saved_ms(finding: Finding) -> float:
    assert finding.cost is not None
    return finding.cost.step_ms_now - finding.cost.step_ms_at_best


@sizes
@layouts
def test_nobody_is_blamed_where_nothing_is_planted(ranks: int, old: bool, tmp_path: Path) -> None:
    assert _verdicts(Job(ranks=ranks, old=old), tmp_path) == {}


@sizes
@layouts
def test_a_late_rank_is_a_straggler(ranks: int, old: bool, tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=ranks, old=old, late_us={ranks - 1: 3000}, clock_offset_s={0: 5.0}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM002": f"rank {ranks - 1}"}
    assert _saved_ms(found["COM002"]) == pytest.approx(3.0, abs=0.01)


def test_a_late_rank_of_many_is_found(tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=64, late_us={33: 3000}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM002": "rank 33"}


@sizes
@layouts
def test_a_slow_gpu_is_no_straggler(ranks: int, old: bool, tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=ranks, old=old, gpu_slowdown={ranks // 2: 2}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM009": f"rank {ranks // 2}"}
    assert _saved_ms(found["COM009"]) == pytest.approx(1.7, abs=0.01)


@sizes
@layouts
def test_larger_batches_are_uneven_work(ranks: int, old: bool, tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=ranks, old=old, larger={0: 2}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM010": "rank 0"}
    assert _saved_ms(found["COM010"]) == pytest.approx(1.5, abs=0.01)


@sizes
def test_more_layers_are_uneven_work(ranks: int, tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=ranks, more_layers={1: 2}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM010": "rank 1"}


def test_a_slow_link_is_seen_beside_other_groups(tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=8, group_size=2, slow_groups={1: 4.0}), tmp_path)
    assert {code: finding.where for code, finding in found.items()} == {"COM003": "ranks 2, 3"}


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_slow_link_is_seen_beside_the_data_sheet(ranks: int, tmp_path: Path) -> None:
    found = _verdicts(Job(ranks=ranks, slow_groups={0: 20.0}), tmp_path)
    assert set(found) == {"COM003"}
