"""Verdicts and exit codes."""

from datetime import date

import msgspec
import pytest

from gpudoctor import gate
from gpudoctor.facts.shm import Shm
from gpudoctor.findings import Evidence, Finding, Fix, Severity
from gpudoctor.policy import Ignore, Policy
from gpudoctor.snapshot import Snapshot

TODAY = date(2026, 12, 1)
READ = Snapshot(shm=Shm(exists=True))
ERROR, WARNING, INFO = Severity


def _finding(severity: Severity = ERROR, code: str = "SHM001", where: str = "/dev/shm") -> Finding:
    return Finding(
        code=code,
        name={"SHM001": "shm-too-small", "SHM002": "shm-full"}[code],
        severity=severity,
        confidence="certain",
        where=where,
        evidence=(Evidence(what="size", seen="64 MiB", wanted="more"),),
        why="workers die",
        fix=(Fix("make it larger"),),
    )


@pytest.mark.parametrize(
    ("found", "fail_on", "verdict", "code"),
    [
        ([], ERROR, "ok", 0),
        ([INFO], ERROR, "ok", 0),
        ([INFO], INFO, "findings", 1),
        ([INFO], None, "ok", 0),
        ([WARNING], ERROR, "findings", 0),
        ([WARNING], WARNING, "findings", 1),
        ([ERROR], ERROR, "findings", 1),
        ([ERROR], INFO, "findings", 1),
        ([ERROR, WARNING], None, "findings", 0),
    ],
)
def test_severities_are_compared(found: list[Severity], fail_on: Severity | None, verdict: str, code: int) -> None:
    findings = [_finding(severity) for severity in found]
    told = gate.verdict(Policy(), READ, findings, fail_on)
    assert told == verdict
    assert gate.exit_code(told, findings, fail_on) == code


def test_a_machine_of_which_nothing_was_read_is_not_checked() -> None:
    told = gate.verdict(Policy(), Snapshot(), [], None)
    assert told == "not-checked"
    assert gate.exit_code(told, [], None) == 3


def test_a_required_subject_that_was_not_read_counts_more_than_a_finding() -> None:
    policy = Policy(required=("gpus",))
    told = gate.verdict(policy, READ, [_finding()], ERROR)
    assert told == "not-checked"
    assert gate.exit_code(told, [_finding()], ERROR) == 3
    assert [item.subject for item in gate.not_read(policy, READ)] == ["gpus"]


def test_the_reason_of_a_required_subject_is_the_machines_own_where_it_gave_one() -> None:
    machine = msgspec.structs.replace(READ, unread={"gpus": "no driver"})
    (item,) = gate.not_read(Policy(required=("gpus",)), machine)
    assert item.reason == "no driver"


def test_ignores_work_by_code_and_by_name_until_the_last_day() -> None:
    for ignore in (
        Ignore(code="SHM001", reason="known"),
        Ignore(name="shm-too-small", reason="known"),
        Ignore(code="shm001", reason="known", expires=TODAY),
        Ignore(code="SHM001", reason="known", where="/dev/shm"),
    ):
        passed = gate.apply(Policy(ignore=(ignore,)), [_finding()], TODAY)
        assert passed.findings == ()
        (ignored,) = passed.ignored
        assert (ignored.code, ignored.where, ignored.reason) == ("SHM001", "/dev/shm", "known")
        assert passed.notes == ()


def test_an_ignore_that_ran_out_ignores_nothing_and_is_told() -> None:
    policy = Policy(ignore=(Ignore(code="SHM001", reason="known", expires=date(2026, 11, 30)),))
    passed = gate.apply(policy, [_finding()], TODAY)
    assert passed.findings == (_finding(),)
    assert passed.ignored == ()
    assert passed.notes == ("the policy's ignore of SHM001 ran out on 2026-11-30: known",)


def test_an_ignore_for_one_place_or_rule_spares_the_others() -> None:
    policy = Policy(ignore=(Ignore(code="SHM001", reason="known", where="GPU 1"),))
    findings = [_finding(where="GPU 1 (spare)"), _finding(where="GPU 10"), _finding(code="SHM002", where="GPU 1")]
    assert gate.apply(policy, findings, TODAY).findings == tuple(findings[1:])


def test_an_ignored_cause_hands_what_follows_to_the_same_finding_elsewhere() -> None:
    policy = Policy(ignore=(Ignore(code="SHM001", reason="known", where="GPU 0"),))
    first = msgspec.structs.replace(_finding(where="GPU 0"), consequences=("SHM002",))
    (left,) = gate.apply(policy, [first, _finding(where="GPU 1")], TODAY).findings
    assert left.consequences == ("SHM002",)


def test_a_severity_of_the_policy_replaces_the_rules_own_and_the_worst_stay_first() -> None:
    policy = Policy(severity={"shm-too-small": INFO})
    findings = gate.apply(policy, [_finding(), _finding(WARNING, "SHM002")], TODAY).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("SHM002", WARNING), ("SHM001", INFO)]
