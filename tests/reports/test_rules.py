"""A rule's one text, told in three ways."""

import json
from typing import Any

import pytest

from gpudoctor.findings import Rule
from gpudoctor.reports import rules as reports
from gpudoctor.reports.page import Page
from gpudoctor.rules.every import ALL_RULES
from gpudoctor.selection import find

every_rule = pytest.mark.parametrize("asked", ALL_RULES, ids=lambda asked: asked.code)


@every_rule
def test_every_way_tells_what_why_fix_and_source(asked: Rule[Any]) -> None:
    told = json.loads(reports.to_json(reports.texts(asked)))
    assert told["fires_when"] == asked.fires_when
    joined = " ".join(reports.explain(Page(), asked).split())
    markdown = reports.to_markdown(asked)
    for words in (asked.code, asked.name, asked.severity.value, *asked.confirm.splitlines()):
        assert words in markdown
    for words in (asked.code, asked.fires_when, asked.why, asked.source, *(fix.text for fix in asked.fix)):
        assert " ".join(words.split()[:3]) in joined


def test_the_list_has_one_line_a_rule_and_fits_the_page() -> None:
    lines = reports.table(Page(), ALL_RULES).splitlines()
    assert len([line for line in lines if line.startswith("  ")]) == len(ALL_RULES)
    assert max(map(len, lines)) <= 80
    reports.table(Page(ascii_only=True), ALL_RULES).encode("ascii")


def test_a_command_to_confirm_stands_on_its_line() -> None:
    assert "  confirm    df -h /dev/shm\n" in reports.explain(Page(), find("SHM001"))
