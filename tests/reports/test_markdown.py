"""The report as a comment."""

import re

import msgspec

from gpudoctor.reports.document import Document
from gpudoctor.reports.markdown import code, render
from tests.reports.golden import assert_golden


def test_a_machine_with_findings_reads_as_in_the_golden_file(ill: Document) -> None:
    assert_golden("markdown-ill.md", render(ill))


def test_a_healthy_machine_has_no_table(well: Document) -> None:
    text = render(well)
    assert text.startswith("## gpudoctor check: ok\n")
    assert "| code |" not in text


def test_code_spans_hold_any_text() -> None:
    assert code("a") == "`a`"
    assert code("a`b``c") == "```a`b``c```"
    assert code("`a") == "`` `a ``"
    assert code("a|b") == "`a\\|b`"
    assert code("") == "` `"


def test_words_of_the_machine_give_no_orders(hostile: Document) -> None:
    text = render(hostile)
    text.encode("utf-8")
    assert "\x1b" not in text
    bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<b>" not in bare
    assert "@user" not in bare
    for row in text.splitlines():
        if row.startswith("| error"):
            assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_a_job_reads_as_in_the_golden_file(job: Document) -> None:
    assert_golden("markdown-job.md", render(job))


def test_stacks_of_a_hang_are_quoted_in_blocks_that_nothing_ends(hanging: Document) -> None:
    assert hanging.run is not None
    run = msgspec.structs.replace(hanging.run, stacks={"rank 0": "a\n```\n<b>"}, error_text=None)
    text = render(msgspec.structs.replace(hanging, run=run))
    assert "rank 0 stood here, innermost call first:\n````\na\n```\n<b>\n````\n" in text
    assert "**the job hung: no step for 60 s**" in text
