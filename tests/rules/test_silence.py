"""No rule speaks where nothing is wrong, or where nothing is known."""

import msgspec
import pytest

from gpudoctor.findings import Rule, Severity
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.snapshot import SUBJECTS, Snapshot

every_rule = pytest.mark.parametrize("asked", MACHINE_RULES, ids=lambda asked: asked.code)


def _spoken(asked: Rule[Snapshot], machine: Snapshot) -> list[str]:
    return [item.seen for item in asked.judge(machine) if (item.severity or asked.severity) is not Severity.INFO]


@every_rule
def test_rules_are_quiet_on_a_healthy_machine(asked: Rule[Snapshot], healthy: Snapshot) -> None:
    assert _spoken(asked, healthy) == []


@every_rule
def test_rules_are_quiet_where_nothing_was_read(asked: Rule[Snapshot]) -> None:
    assert list(asked.judge(Snapshot())) == []


@every_rule
def test_rules_are_quiet_where_every_subject_is_empty(asked: Rule[Snapshot]) -> None:
    """Each subject was read, and none of its fields had an answer."""
    fields = {field.name: field.type for field in msgspec.structs.fields(Snapshot) if field.name in SUBJECTS}
    empty = Snapshot(**{name: msgspec.json.decode(b"{}", type=kind) for name, kind in fields.items()})
    assert _spoken(asked, empty) == []


@every_rule
@pytest.mark.parametrize("missing", SUBJECTS)
def test_a_missing_subject_makes_no_rule_speak(asked: Rule[Snapshot], missing: str, healthy: Snapshot) -> None:
    assert _spoken(asked, msgspec.structs.replace(healthy, **{missing: None})) == []
