"""The report for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.findings import Fix, Severity
from gpudoctor.reports.document import Document, NotRead
from gpudoctor.reports.grouping import Group, grouped, places
from gpudoctor.reports.page import Page
from gpudoctor.reports.summary import count_by_severity, header, lines

MARKS = {Severity.ERROR: "✖", Severity.WARNING: "▲", Severity.INFO: "•"}
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def render(document: Document, *, width: int = 80, colour: bool = False, ascii_only: bool = False) -> str:
    """As text that ends in a newline. Commands to paste are the only lines that may be longer than `width`."""
    page = Page(width, colour, ascii_only)
    _verdict(page, document)
    if document.run is not None:
        from gpudoctor.reports import terminal_run  # here: a check of a machine loads nothing for jobs

        terminal_run.ended(page, document.run)
        page.paragraph(header(document), style="bold")
        terminal_run.steps(page, document.run)
    else:
        page.paragraph(header(document), style="bold")
        for title, facts in lines(document):
            page.entry(title, facts)
    groups = grouped(document.findings)
    for group in groups:
        if group.first.severity is not Severity.INFO:
            _finding(page, group)
    infos = [group for group in groups if group.first.severity is Severity.INFO]
    if len(infos) < len(groups):
        page.blank()
        for group in infos:
            _info(page, group)
    elif infos:
        # On a healthy machine one line is enough: `explain` tells the rest.
        names = ", ".join(f"{group.first.code} {group.first.name}" for group in infos)
        page.paragraph(
            f"{names} (gpudoctor explain CODE)",
            label=f"{MARKS[Severity.INFO]} INFO ",
            label_style=STYLES[Severity.INFO],
        )
    _rest(page, document)
    if len(infos) < len(groups):
        page.entry("more", f"gpudoctor explain {groups[0].first.code}")
    _verdict(page, document)
    return page.text()


def _verdict(page: Page, document: Document) -> None:
    counts = count_by_severity(document.findings)
    if document.verdict == "not-checked":
        page.paragraph(f"✖ not checked{': ' * bool(counts)}{counts}", "bold red")
    elif document.verdict == "findings":
        worst = document.findings[0].severity
        page.paragraph(f"{MARKS[worst]} findings: {counts}", STYLES[worst])
    else:
        page.paragraph(f"✔ ok{': ' * bool(counts)}{counts}", "bold green")


def _finding(page: Page, group: Group) -> None:
    page.blank()
    _headline(page, group, "")
    if group.first.cost is not None:
        from gpudoctor.reports.steps import cost

        page.entry("cost", cost(group))
    for place, evidence in group.seen:
        page.entry("seen", f"{place}{': ' * bool(place)}{evidence.what}: {evidence.seen}")
        page.entry("wanted", evidence.wanted + (f" ({evidence.source})" if evidence.source else ""))
    page.entry("why", group.first.why)
    for fix in group.fix:
        _fix(page, fix)
    if group.consequences:
        count = len(group.consequences)
        page.entry("follows", f"+ {count} finding{'s' * (count > 1)}: {', '.join(group.consequences)}")


def _fix(page: Page, fix: Fix) -> None:
    page.entry("fix", fix.text + (f" ({fix.safety})" if fix.safety != "safe" else ""))
    if fix.command:
        page.command(fix.command)


def _info(page: Page, group: Group) -> None:
    seen = "; ".join(f"{place}{' ' * bool(place)}{evidence.what} {evidence.seen}" for place, evidence in group.seen)
    _headline(page, group, f": {seen}")


def _headline(page: Page, group: Group, tail: str) -> None:
    finding = group.first
    likely = " (likely)" if finding.confidence == "likely" else ""
    where = f" · {group.where}" if group.where else ""
    page.paragraph(
        f"{finding.code} {finding.name}{likely}{where}{tail}",
        "" if finding.severity is Severity.INFO else "bold",
        label=f"{MARKS[finding.severity]} {finding.severity.name} ",
        label_style=STYLES[finding.severity],
    )


def _rest(page: Page, document: Document) -> None:
    for ignored in document.ignored:
        until = f" until {ignored.expires}" if ignored.expires else ""
        where = f" {ignored.where}" if ignored.where else ""
        page.entry("ignored", f"{ignored.code} {ignored.name}{where}{until}: {ignored.reason}")
    for reason, subjects in _by_reason(document.not_read):
        page.entry("not read", f"{subjects}: {reason}")
    for note in document.notes:
        page.entry("note", note)


def _by_reason(not_read: tuple[NotRead, ...]) -> Iterator[tuple[str, str]]:
    subjects: dict[str, list[str]] = {}
    for item in not_read:
        subjects.setdefault(item.reason, []).append(item.subject)
    for reason, names in subjects.items():
        yield reason, places(names)
