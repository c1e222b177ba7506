"""Each recorded trace through the engine and the rules: what was planted is found, and what was not stays unsaid."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.findings import Diagnosis, Finding, Severity, diagnose
from gpudoctor.profiling.job import analyze
from gpudoctor.rules.every import RUN_RULES

TRACES = Path(__file__).parent.parent / "recorded" / "traces"
TRUTH: list[dict[str, Any]] = msgspec.toml.decode((TRACES / "truth.toml").read_bytes())["trace"]
each_trace = pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["name"])

BESIDE = {
    # gloo between two processes that share the one GPU of the recording machine.
    "ddp-accum-sync": {"COM001", "MEM007"},
    "ddp-find-unused": {"COM001", "MEM007", "COM002"},  # rank 1 launches 4 ms slower: the other waits 7 % of the step
    "ddp-gloo": {"MEM007"},
    "ddp-straggler": {"COM001", "MEM007", "CPU003"},  # what rank 1 does while the other waits
    "ddp-tiny-buckets": {"COM001", "MEM007"},
    "fp32-no-tf32": {"KRN002"},
    "log-stall": {"CPU002"},  # its loss.item()
    "pageable-h2d": {"CPU003"},  # 14 ms a step in which the old batch is freed
}
"""Findings beside the planted one, each looked at and right."""


@cache
def _diagnosis(name: str) -> Diagnosis:
    files = [TRACES / file for truth in TRUTH if truth["name"] == name for file in truth["files"]]
    return diagnose(analyze(files, workers=1), RUN_RULES)


def _found(name: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in _diagnosis(name).findings}


@each_trace
def test_what_was_planted_is_found(truth: dict[str, Any]) -> None:
    assert not _diagnosis(truth["name"]).broken
    assert set(truth["must"]) <= set(_found(truth["name"]))


@each_trace
def test_nothing_else_is_said(truth: dict[str, Any]) -> None:
    loud = {code for code, finding in _found(truth["name"]).items() if finding.severity is not Severity.INFO}
    assert loud <= set(truth["must"]) | BESIDE.get(truth["name"], set())


@each_trace
def test_no_cost_promises_a_step_shorter_than_what_remains(truth: dict[str, Any]) -> None:
    for finding in _found(truth["name"]).values():
        if finding.cost is not None:
            assert 0 < finding.cost.share_of_step <= 1
            assert 0 < finding.cost.step_ms_at_best <= finding.cost.step_ms_now
            assert finding.cost.step_ms_now == pytest.approx(truth["step_ms"], rel=0.05)


def test_a_healthy_trace_has_no_finding() -> None:
    assert _found("healthy") == {}


def test_the_loader_without_workers_would_leave_what_the_gpu_needs() -> None:
    finding = _found("slow-loader")["DAT001"]
    assert finding.severity is Severity.ERROR
    assert finding.cost is not None
    assert finding.cost.step_ms_at_best == pytest.approx(42, abs=3)
    assert finding.fix[0].command == "num_workers=5, persistent_workers=True, pin_memory=True"


def test_the_straggler_is_named_with_what_it_did() -> None:
    finding = _found("ddp-straggler")["COM002"]
    assert finding.where == "rank 1"
    assert "Python code on the host" in finding.evidence[1].what
    assert finding.cost is not None
    assert finding.cost.step_ms_now - finding.cost.step_ms_at_best == pytest.approx(60, abs=8)


def test_needed_unused_parameters_are_no_fault() -> None:
    assert "COM006" not in _found("ddp-find-unused")


def test_reading_numbers_costs_the_idle_time_a_host_ahead_would_hide() -> None:
    finding = _found("item-sync")["CPU002"]
    assert finding.cost is not None
    assert finding.cost.step_ms_at_best == pytest.approx(42, abs=1)
