"""The table of error texts: rows that can match, name a source, and lead to findings that exist."""

import re

import pytest

from gpudoctor.rules import MACHINE_RULES
from gpudoctor.tables import error_texts
from gpudoctor.tables.error_texts import Text

every_row = pytest.mark.parametrize("row", error_texts.load().text, ids=lambda row: f"{row.kind}: {row.needle}")


@every_row
def test_a_row_compiles_and_names_a_source_and_a_finding(row: Text) -> None:
    assert row.source in error_texts.load().sources
    assert row.code in {rule.code for rule in MACHINE_RULES}
    for pattern in (row.pattern, *row.also):
        error_texts.compiled(pattern)


@every_row
def test_a_pattern_repeats_nothing_without_a_bound(row: Text) -> None:
    for pattern in (row.pattern, *row.also):
        bare = re.sub(r"\\.|\[[^\]]*\]", "x", pattern)
        assert not re.search(r"[*+]|\{\d+,\}", bare), pattern


@every_row
def test_a_needle_is_one_line(row: Text) -> None:
    assert row.needle
    assert row.needle == " ".join(row.needle.split()) or row.needle.strip() == row.needle.lstrip()


def test_a_kind_of_a_cuda_error_finds_its_own_row() -> None:
    row = error_texts.cause("illegal_access", 716)
    assert row is not None
    assert row.needle == "misaligned address"
    assert error_texts.cause("no such kind") is None
