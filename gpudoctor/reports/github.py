"""The report as a short answer on an issue: verdict, cause, command, at most 20 lines."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.findings import Severity
from gpudoctor.reports.document import Document
from gpudoctor.reports.grouping import Group, grouped
from gpudoctor.reports.markdown import code, escaped
from gpudoctor.reports.summary import count_by_severity, header

MOST_LINES = 20
MOST_FINDINGS = 4
"""Four lines each."""
LONGEST = 300
"""Characters of what was seen: error texts can be long."""


def render(document: Document) -> str:
    """Infos are left out: who asks for help has a fault to find."""
    groups = [group for group in grouped(document.findings) if group.first.severity is not Severity.INFO]
    lines = [_verdict(document), ""]
    for group in groups[:MOST_FINDINGS]:
        lines.extend(_finding(group))
    if len(groups) > MOST_FINDINGS:
        rest = ", ".join(group.first.code for group in groups[MOST_FINDINGS : MOST_FINDINGS + 8])
        lines.append(f"- {len(groups) - MOST_FINDINGS} more: {rest}")
    notes = [f"> {escaped(note[:LONGEST])}" for note in document.notes[: max(0, MOST_LINES - len(lines) - 1)]]
    # Without a blank line GitHub takes the notes for a part of the last finding.
    return "\n".join([*lines, "", *notes] if notes and groups else [*lines, *notes]) + "\n"


def _verdict(document: Document) -> str:
    counts = count_by_severity(document.findings)
    machine = header(document)
    told = f"**{document.tool.name}: {counts or document.verdict}**"
    return f"{told} · {code(machine)}" if machine else told


def _finding(group: Group) -> Iterator[str]:
    finding = group.first
    likely = ", likely" if finding.confidence == "likely" else ""
    place, evidence = group.seen[0]
    where = code(place or group.where) + " " if place or group.where else ""
    seen = code(f"{evidence.what}: {evidence.seen}"[:LONGEST])
    yield f"- **{finding.code} {finding.name}** ({finding.severity.value}{likely}) {where}{seen}"
    yield f"  - cause: {escaped(finding.why)}"
    for fix in group.fix[:1]:
        yield f"  - cure: {escaped(fix.text)}" + (f" ({fix.safety})" if fix.safety != "safe" else "")
        if fix.command:
            yield f"  - {code(fix.command)}"
