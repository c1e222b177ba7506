"""From evidence to findings: order, grouping, folding."""

from collections.abc import Iterator

from gpudoctor.findings import Cost, Evidence, Finding, Fix, Rule, Severity, diagnose, rule


def _rule(
    code: str, *evidence: Evidence, severity: Severity = Severity.WARNING, because: tuple[str, ...] = ()
) -> Rule[None]:
    @rule(
        code, code.lower(), severity, why="w", fix=Fix("the rule's"), confirm="c", source="the rule's", because=because
    )
    def judge(_: None) -> Iterator[Evidence]:
        """Fires when told to.

        Silent otherwise.
        """
        yield from evidence

    return judge


def _see(where: str = "", severity: Severity | None = None, cost: Cost | None = None) -> Evidence:
    return Evidence(where=where, what="thing", seen="1", wanted="2", severity=severity, cost=cost)


def _findings(*rules: Rule[None]) -> tuple[Finding, ...]:
    return diagnose(None, rules).findings


def test_a_rule_tells_what_its_docstring_says() -> None:
    asked = _rule("AAA001")
    assert (asked.area, asked.fires_when, asked.silent_when) == ("AAA", "Fires when told to.", "Silent otherwise.")


def test_each_place_makes_one_finding_with_all_its_evidence() -> None:
    found = _findings(_rule("AAA001", _see("GPU 0"), _see("GPU 1"), _see("GPU 0")))
    assert [(finding.where, len(finding.evidence)) for finding in found] == [("GPU 0", 2), ("GPU 1", 1)]


def test_evidence_without_a_source_has_the_rule_s() -> None:
    (finding,) = _findings(_rule("AAA001", _see()))
    assert finding.evidence[0].source == "the rule's"
    assert finding.fix == (Fix("the rule's"),)


def test_the_worst_come_first_and_then_the_dearest() -> None:
    cheap = Cost(share_of_step=0.1, step_ms_now=10, step_ms_at_best=9)
    dear = Cost(share_of_step=0.5, step_ms_now=10, step_ms_at_best=5)
    found = _findings(
        _rule("AAA001", _see(), severity=Severity.INFO),
        _rule("AAA002", _see(cost=cheap)),
        _rule("AAA003", _see(cost=dear)),
        _rule("AAA004", _see(severity=Severity.ERROR)),
    )
    assert [finding.code for finding in found] == ["AAA004", "AAA003", "AAA002", "AAA001"]


def test_consequences_fold_under_the_first_cause_of_the_chain() -> None:
    (root,) = _findings(
        _rule("AAA001", _see()),
        _rule("BBB001", _see(), because=("AAA001",)),
        _rule("CCC001", _see("GPU 0"), _see("GPU 1"), because=("ZZZ001", "BBB001")),
    )
    assert (root.code, root.consequences) == ("AAA001", ("BBB001", "CCC001"))


def test_a_rule_whose_cause_is_silent_stands_alone() -> None:
    found = _findings(_rule("AAA001"), _rule("BBB001", _see(), because=("AAA001",)))
    assert [finding.code for finding in found] == ["BBB001"]


def test_an_info_swallows_nothing() -> None:
    found = _findings(_rule("AAA001", _see(), severity=Severity.INFO), _rule("BBB001", _see(), because=("AAA001",)))
    assert {finding.code for finding in found} == {"AAA001", "BBB001"}


def test_a_warning_swallows_no_error() -> None:
    worse = _rule("BBB001", _see(), severity=Severity.ERROR, because=("AAA001",))
    assert [finding.code for finding in _findings(_rule("AAA001", _see()), worse)] == ["BBB001", "AAA001"]


def test_rules_that_blame_each_other_do_not_vanish() -> None:
    found = _findings(_rule("AAA001", _see(), because=("BBB001",)), _rule("BBB001", _see(), because=("AAA001",)))
    assert [(finding.code, finding.consequences) for finding in found] == [("AAA001", ("BBB001",))]


def test_only_the_first_finding_of_a_root_tells_what_follows() -> None:
    found = _findings(_rule("AAA001", _see("GPU 0"), _see("GPU 1")), _rule("BBB001", _see(), because=("AAA001",)))
    assert [finding.consequences for finding in found] == [("BBB001",), ()]


def test_a_rule_that_raises_hides_no_other() -> None:
    @rule("BAD001", "bad", Severity.ERROR, why="w", fix=Fix("f"), confirm="c", source="s")
    def bad(_: None) -> Iterator[Evidence]:
        """Never fires."""
        yield _see()
        raise ValueError("boom")

    diagnosis = diagnose(None, (bad, _rule("AAA001", _see())))
    assert [finding.code for finding in diagnosis.findings] == ["BAD001", "AAA001"] or diagnosis.broken
    assert diagnosis.broken == {"BAD001": "ValueError: boom"}
