"""One finding on several GPUs or ranks is one thing to read."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpudoctor.findings import Evidence, Finding, Fix


class Group(msgspec.Struct, frozen=True):
    """Findings of one rule with one severity."""

    first: Finding
    where: str
    """All places in one text: `GPU 0, 1, 3`; empty for the whole machine."""
    seen: tuple[tuple[str, Evidence], ...]
    """Each different evidence once, with the places that share it."""
    fix: tuple[Fix, ...]
    consequences: tuple[str, ...]
    """Codes."""


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """In the order of the first of each."""
    by_rule: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault((finding.code, finding.severity, finding.confidence), []).append(finding)
    return tuple(_group(same) for same in by_rule.values())


def places(wheres: Iterable[str]) -> str:
    """`GPU 0, 1, 3` of `GPU 0`, `GPU 1` and `GPU 3`; rows of more than three as `GPU 0–7`."""
    told: dict[str, None] = {}
    kind = ""
    for where in dict.fromkeys(where for where in wheres if where):
        match = re.fullmatch(r"(\D*\D )?(\d+)", where)
        numbered = match is not None and match.group(1) is not None
        told[where[len(kind) :] if match and numbered and match.group(1) == kind else where] = None
        kind = match.group(1) if match and numbered else ""
    return ", ".join(text for row in _rows(told) for text in (row if len(row) <= 3 else (_span(row),)))


def _rows(told: Iterable[str]) -> list[list[str]]:
    """Numbers that follow each other stand in one row."""
    rows: list[list[str]] = []
    for text in told:
        if rows and text.isdecimal() and re.search(rf"(?<!\d){int(text) - 1}$", rows[-1][-1]):
            rows[-1].append(text)
        else:
            rows.append([text])
    return rows


def _span(row: list[str]) -> str:
    return f"{row[0]}–{row[-1]}"


def _group(findings: list[Finding]) -> Group:
    shared: dict[Evidence, list[str]] = {}
    for finding in findings:
        for evidence in finding.evidence:
            shared.setdefault(evidence, []).append(finding.where)
    where = places(finding.where for finding in findings)
    told = ((places(wheres), evidence) for evidence, wheres in shared.items())
    return Group(
        first=findings[0],
        where=where,
        # A place that is the whole group's stands in the headline already.
        seen=tuple(("" if place == where else place, evidence) for place, evidence in told),
        fix=tuple(dict.fromkeys(fix for finding in findings for fix in finding.fix)),
        consequences=tuple(dict.fromkeys(code for finding in findings for code in finding.consequences)),
    )
