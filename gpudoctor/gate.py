"""From findings to a verdict and an exit code: severities and ignores of the policy, subjects that must be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import msgspec

from gpudoctor.findings import Finding, Severity
from gpudoctor.policy import Ignore, Policy
from gpudoctor.reports.document import Ignored, NotRead, Verdict
from gpudoctor.run import Run
from gpudoctor.selection import find
from gpudoctor.snapshot import SUBJECTS, Snapshot

OK, FOUND, WRONG_USAGE, NOT_CHECKED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes, the same for every command and format. Never a count."""


@dataclass(frozen=True)
class Passed:
    """What is left of the findings once the policy had its say."""

    findings: tuple[Finding, ...]
    ignored: tuple[Ignored, ...]
    notes: tuple[str, ...]
    """One for each ignore that has run out."""


def apply(policy: Policy, findings: Iterable[Finding], today: date) -> Passed:
    """Severities first, then ignores; the worst stay first."""
    severities = {find(word).code: severity for word, severity in policy.severity.items()}
    kept: list[Finding] = []
    ignored: list[Ignored] = []
    follow: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        told = msgspec.structs.replace(
            finding,
            severity=severities.get(finding.code, finding.severity),
            # Of the same rule at a place that is ignored: what follows from it follows from this one too.
            consequences=finding.consequences or follow.pop(finding.code, ()),
        )
        ignore = next((ignore for ignore in policy.ignore if _covers(ignore, told, today)), None)
        if ignore is None:
            kept.append(told)
        else:
            follow[told.code] = told.consequences
            ignored.append(
                Ignored(code=told.code, name=told.name, where=told.where, reason=ignore.reason, expires=ignore.expires)
            )
    notes = (
        f"the policy's ignore of {ignore.code or ignore.name} ran out on {ignore.expires}: {ignore.reason}"
        for ignore in policy.ignore
        if _expired(ignore, today)
    )
    return Passed(tuple(sorted(kept, key=lambda finding: finding.severity.rank)), tuple(ignored), tuple(notes))


def not_read(policy: Policy, snapshot: Snapshot) -> tuple[NotRead, ...]:
    """Subjects and parts of subjects with their reasons, those the policy requires and nobody asked for included."""
    reasons = snapshot.not_read()
    for subject in policy.required:
        if getattr(snapshot, subject) is None:
            reasons.setdefault(subject, "the policy requires it, and it is no part of this check")
    return tuple(NotRead(subject=subject, reason=reason) for subject, reason in reasons.items())


def verdict(policy: Policy, snapshot: Snapshot, findings: Iterable[Finding], fail_on: Severity | None) -> Verdict:
    """`fail_on` None means never. Warnings count as findings even where only errors fail."""
    nothing = all(getattr(snapshot, subject) is None for subject in SUBJECTS)
    if nothing or any(getattr(snapshot, subject) is None for subject in policy.required):
        return "not-checked"
    counts = max(Severity.WARNING.rank, fail_on.rank if fail_on else 0)
    return "findings" if any(finding.severity.rank <= counts for finding in findings) else "ok"


def verdict_of_run(measured: Run, findings: Iterable[Finding], fail_on: Severity | None) -> Verdict:
    """As `verdict`; a job of which no rank's steps were measured and that did not fail either is not checked."""
    found = [finding.severity.rank for finding in findings]
    if not any(rank.step_ms is not None for rank in measured.ranks) and Severity.ERROR.rank not in found:
        return "not-checked"
    counts = max(Severity.WARNING.rank, fail_on.rank if fail_on else 0)
    return "findings" if any(rank <= counts for rank in found) else "ok"


def exit_code(verdict: Verdict, findings: Iterable[Finding], fail_on: Severity | None) -> int:
    """OK, FOUND or NOT_CHECKED."""
    if verdict == "not-checked":
        return NOT_CHECKED
    if fail_on is not None and any(finding.severity.rank <= fail_on.rank for finding in findings):
        return FOUND
    return OK


def _covers(ignore: Ignore, finding: Finding, today: date) -> bool:
    return (
        find(ignore.code or ignore.name or "").code == finding.code
        and (ignore.where is None or f"{finding.where} ".startswith(f"{ignore.where} "))
        and not _expired(ignore, today)
    )


def _expired(ignore: Ignore, today: date) -> bool:
    return ignore.expires is not None and ignore.expires < today
