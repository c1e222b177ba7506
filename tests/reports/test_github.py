"""The short answer for an issue."""

import msgspec

from gpudoctor.reports.document import Document
from gpudoctor.reports.github import MOST_LINES, render
from tests.reports.golden import assert_golden


def test_a_machine_with_findings_reads_as_in_the_golden_file(ill: Document) -> None:
    assert_golden("github-ill.md", render(ill))


def test_it_is_never_longer_than_twenty_lines(ill: Document) -> None:
    many = tuple(
        msgspec.structs.replace(finding, code=f"{finding.code[:3]}{number:03}")
        for number in range(30)
        for finding in ill.findings
    )
    document = msgspec.structs.replace(ill, findings=many, notes=tuple(f"note {number}" for number in range(30)))
    assert len(render(document).splitlines()) <= MOST_LINES


def test_hostile_words_are_no_markup(hostile: Document) -> None:
    text = render(hostile)
    assert "\x1b" not in text
    assert "<script" not in text.replace("`", "")


def test_a_healthy_machine_is_a_line(well: Document) -> None:
    assert render(well).splitlines()[0].startswith("**gpudoctor: ok**")
