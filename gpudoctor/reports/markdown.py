"""The report as a comment on an issue: what was found in a table, each finding below it, the rest folded away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.run import StepShares
from gpudoctor.reports.document import Document
from gpudoctor.reports.figures import percent
from gpudoctor.reports.grouping import Group, grouped
from gpudoctor.reports.job import ending
from gpudoctor.reports.plain import plain, plain_lines
from gpudoctor.reports.steps import NAMES, apart, cost, outstanding, pace
from gpudoctor.reports.summary import count_by_severity, header, lines
from gpudoctor.run import Run


def render(document: Document) -> str:
    """As GitHub reads it. Words of the machine stand in code spans, where they mean nothing but themselves."""
    return "\n".join(_lines(document)) + "\n"


def code(text: str) -> str:
    """A code span that holds any text, also in a table."""
    text = plain(text).replace("|", "\\|") or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _lines(document: Document) -> Iterator[str]:
    groups = grouped(document.findings)
    counts = count_by_severity(document.findings)
    yield f"## {document.tool.name} {document.command}: {document.verdict}{' · ' * bool(counts)}{counts}"
    yield ""
    yield code(header(document) or "nothing was read")
    if document.run is not None:
        yield from _run(document.run)
    if groups:
        yield from ("", "| | code | where | seen | wanted |", "|---|---|---|---|---|")
        yield from (_row(group) for group in groups)
    for group in groups:
        yield from _finding(group)
    yield from _folded("healthy", [f"- {title}: {code(facts)}" for title, facts in lines(document)])
    yield from _folded("not read", [f"- {item.subject}: {code(item.reason)}" for item in document.not_read])
    yield from _folded(
        "ignored by the policy",
        [
            f"- {item.code} {item.name} {code(item.where or 'everywhere')}: {escaped(item.reason)}"
            + (f" (until {item.expires})" if item.expires else "")
            for item in document.ignored
        ],
    )
    if document.notes:
        yield ""
        yield from (f"> {escaped(note)}" for note in document.notes)
    yield from ("", f"<sub>{document.tool.name} {document.tool.version}</sub>")


def _run(run: Run) -> Iterator[str]:
    if (ended := ending(run)) is not None:
        yield from ("", f"**{escaped(ended.text)}**")
        yield from _fenced(ended.error, "")
        for where, stack in ended.stacks:
            yield from ("", f"{escaped(where)} stood here, innermost call first:", *_fenced(stack, ""))
    yield from ("", escaped(pace(run)))
    if run.shares is None:
        return
    ranks = outstanding(run) if apart(run) else ()
    yield from ("", "| step |" + "".join(f" {name} |" for name in NAMES), "|---|" + "---:|" * len(NAMES))
    yield _share_row("mean" if ranks else "all", run.shares)
    for rank, why in ranks:
        if rank.shares is not None:
            yield _share_row(f"rank {rank.rank}{' ' * bool(why)}{why}", rank.shares)


def _share_row(title: str, shares: StepShares) -> str:
    return f"| {title} |" + "".join(f" {percent(getattr(shares, name))} |" for name in NAMES)


def _row(group: Group) -> str:
    seen = "<br>".join(code(f"{evidence.what}: {evidence.seen}") for _, evidence in group.seen)
    wanted = "<br>".join(dict.fromkeys(code(evidence.wanted) for _, evidence in group.seen))
    where = code(group.where) if group.where else ""
    return f"| {group.first.severity.value} | {group.first.code} {group.first.name} | {where} | {seen} | {wanted} |"


def _finding(group: Group) -> Iterator[str]:
    likely = " (likely)" if group.first.confidence == "likely" else ""
    yield ""
    yield f"### {group.first.code} {group.first.name}{likely}"
    yield ""
    for place, evidence in group.seen:
        told = (
            f"- seen{' at ' * bool(place)}{code(place) if place else ''}: {code(f'{evidence.what}: {evidence.seen}')}"
        )
        yield f"{told}, wanted {code(evidence.wanted)}" + (f" ({escaped(evidence.source)})" if evidence.source else "")
    if price := cost(group):
        yield f"- cost: {escaped(price)}"
    yield f"- why: {escaped(group.first.why)}"
    for fix in group.fix:
        yield f"- fix: {escaped(fix.text)}" + (f" ({fix.safety})" if fix.safety != "safe" else "")
        if fix.command:
            yield from _fenced(fix.command, "  ", "sh")
    if group.consequences:
        yield f"- follows: {', '.join(group.consequences)}"


def _fenced(text: str, indent: str, language: str = "") -> Iterator[str]:
    """A block of code that no line of the text can end."""
    if text:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        yield f"{indent}{fence}{language}"
        yield from (f"{indent}{line}" for line in plain_lines(text).splitlines())
        yield f"{indent}{fence}"


def _folded(title: str, items: list[str]) -> Iterator[str]:
    if items:
        yield from ("", f"<details><summary>{title} ({len(items)})</summary>", "", *items, "", "</details>")


def escaped(text: str) -> str:
    """Prose of ours or of the policy: no markup, no mention; links stay links."""
    return " ".join(word if word.startswith("https://") else _without_markup(word) for word in plain(text).split())


def _without_markup(word: str) -> str:
    return re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", word).replace("@", "@\u200b")
