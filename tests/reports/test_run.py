"""The run in the report for machines."""

import json
from typing import Any

import jsonschema
import pytest

from gpudoctor.facts.run import StepShares
from gpudoctor.reports import json as report
from gpudoctor.reports.document import Document
from gpudoctor.reports.run import RankReport, told
from gpudoctor.run import Run


@pytest.fixture
def run(job: Document) -> dict[str, Any]:
    """As it is written."""
    found: dict[str, Any] = json.loads(report.render(job))["run"]
    return found


def test_the_keys_of_the_contract_are_always_there() -> None:
    keys = {"world_size", "steps", "step_ms", "shares", "exit_code", "ranks"}
    assert keys <= set(told(Run()).__struct_fields__)
    assert {"rank", "device", "step_ms", "shares"} <= set(RankReport.__struct_fields__)


def test_all_seven_shares_are_written_and_sum_to_one(run: dict[str, Any]) -> None:
    for shares in (run["shares"], *(rank["shares"] for rank in run["ranks"])):
        assert tuple(shares) == StepShares.__struct_fields__
        assert sum(shares.values()) == pytest.approx(1)
    assert run["shares"]["sync"] == 0.0


def test_what_is_not_known_is_null_and_not_left_out(job: Document) -> None:
    assert job.run is not None
    empty = told(Run(ranks=(job.run.ranks[0].__class__(rank=5),))).ranks[0]
    assert (empty.rank, empty.device, empty.step_ms, empty.shares) == (5, None, None, None)


def test_documents_with_a_run_are_valid_by_the_schema(job: Document, hanging: Document) -> None:
    for document in (job, hanging):
        jsonschema.validate(json.loads(report.render(document)), report.schema())


def test_the_machine_is_told_once(job: Document) -> None:
    text = report.render(job)
    assert "machine" not in json.loads(text)["run"]
    assert text.count('"fabric_manager_running"') == 1


def test_columns_that_fill_megabytes_stay_in_the_run_folder(run: dict[str, Any]) -> None:
    rank = run["ranks"][0]
    assert not {"collectives", "each_step", "gaps", "timeline"} & set(rank)
    assert "groups" not in rank["kernels"]
    assert not {"step_times_ms", "losses"} & set(rank["job"])
    assert rank["job"]["timed_steps"] == 20
    assert len(json.dumps(run)) < 3000 * len(run["ranks"])


def test_boards_are_told_by_peak_and_mean(run: dict[str, Any]) -> None:
    board = run["gpus"][1]
    assert board["memory_peak_bytes"] == 45 * 2**30
    assert board["utilization_mean"] == pytest.approx(0.6, abs=0.01)
    assert board["holders"] == [{"pid": 4001, "rank": 1, "peak_bytes": 44 * 2**30}]
    assert told(Run()).gpus is None
