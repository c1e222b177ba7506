"""What a rule is, for `explain`, `rules` and docs/rules.md: all from its one text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gpudoctor.findings import Fix, Rule, Severity
from gpudoctor.reports.markdown import escaped
from gpudoctor.reports.page import Page
from gpudoctor.rules import AREAS


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """One rule as JSON."""

    code: str
    name: str
    severity: Severity
    area: str
    fires_when: str
    silent_when: str
    why: str
    fix: tuple[Fix, ...]
    confirm: str
    source: str
    because: tuple[str, ...]


def texts(rule: Rule[Any]) -> RuleText:
    """All that is written about a rule."""
    return RuleText(**{name: getattr(rule, name) for name in RuleText.__struct_fields__})


def to_json(told: RuleText | list[RuleText]) -> str:
    """Indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"


def explain(page: Page, rule: Rule[Any]) -> str:
    """All about one rule, for a terminal."""
    page.paragraph(f"{rule.code} {rule.name} · {rule.severity.value} · {AREAS[rule.area]}", "bold")
    page.entry("fires when", rule.fires_when)
    if rule.silent_when:
        page.entry("but", rule.silent_when)
    page.entry("why", rule.why)
    for fix in rule.fix:
        page.entry("fix", fix.text + (f" ({fix.safety})" if fix.safety != "safe" else ""))
        if fix.command:
            page.command(fix.command)
    page.command(rule.confirm, "confirm")
    page.entry("source", rule.source)
    if rule.because:
        page.entry("follows", ", ".join(rule.because))
    return page.text()


def table(page: Page, rules: Iterable[Rule[Any]]) -> str:
    """One line a rule, area by area, for a terminal."""
    area = ""
    listed = _by_code(rules)
    width = max((len(rule.name) for rule in listed), default=0)
    for rule in listed:
        if rule.area != area:
            area = rule.area
            page.paragraph(f"{area} · {AREAS[area]}", "bold")
        page.line(f"  {rule.code} {rule.name:<{width}} {rule.severity.value:<7} {rule.fires_when}")
    return page.text()


def all_to_markdown(rules: Iterable[Rule[Any]]) -> str:
    """A chapter an area."""
    by_area: dict[str, list[Rule[Any]]] = {}
    for rule in _by_code(rules):
        by_area.setdefault(rule.area, []).append(rule)
    return "\n".join(
        "\n".join([f"## {area}: {AREAS[area]}", "", *map(to_markdown, members)]) for area, members in by_area.items()
    )


def to_markdown(rule: Rule[Any]) -> str:
    """A section of docs/rules.md."""
    told = [f"### {rule.code} {rule.name}", "", f"{rule.severity.value} · {escaped(rule.fires_when)}", ""]
    if rule.silent_when:
        told += [escaped(rule.silent_when), ""]
    told.append(f"- why: {escaped(rule.why)}")
    for fix in rule.fix:
        told.append(f"- fix: {escaped(fix.text)}" + (f" ({fix.safety})" if fix.safety != "safe" else ""))
        if fix.command:
            told += ["  ```sh", *(f"  {line}" for line in fix.command.splitlines()), "  ```"]
    told += ["- confirm:", "  ```sh", *(f"  {line}" for line in rule.confirm.splitlines()), "  ```"]
    told.append(f"- source: {escaped(rule.source)}")
    if rule.because:
        told.append(f"- folded under: {', '.join(rule.because)}")
    return "\n".join(told) + "\n"


def _by_code(rules: Iterable[Rule[Any]]) -> list[Rule[Any]]:
    return sorted(rules, key=lambda rule: (list(AREAS).index(rule.area), rule.code))
