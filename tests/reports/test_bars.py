"""Bars on a terminal."""

import pytest

from gpudoctor.reports.bars import BLOCKS, LETTERS, STYLES, draw
from gpudoctor.reports.page import Page
from gpudoctor.reports.steps import NAMES
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, LATE, run_of


def _drawn(run: Run, width: int = 80, ascii_only: bool = False) -> list[str]:
    page = Page(width, ascii_only=ascii_only)
    draw(page, run)
    return page.text().splitlines()


def test_every_share_has_a_sign_of_its_own() -> None:
    for signs in (BLOCKS, LETTERS, STYLES):
        assert list(signs) == list(NAMES)
        assert len(set(signs.values())) == len(NAMES)


def test_ranks_that_look_alike_share_one_bar() -> None:
    lines = _drawn(run_of([ALIKE, ALIKE], Snapshot()))
    assert lines[0].startswith("  goes to    █")
    assert not any("rank" in line for line in lines)
    assert len(lines[0]) == 80


def test_ranks_that_differ_have_a_bar_each() -> None:
    lines = _drawn(run_of([ALIKE, LATE], Snapshot()))
    assert [line.split("█")[0].strip() for line in lines[:3]] == ["mean of 2", "rank 0", "rank 1"]
    assert lines[2].count("░") > lines[1].count("░")
    assert all(line.endswith("82.1 ms") for line in lines[:3])


def test_of_many_ranks_the_others_are_counted() -> None:
    lines = _drawn(run_of([ALIKE] * 63 + [LATE], Snapshot()))
    assert any("62 other ranks are like the mean" in line for line in lines)
    assert len(lines) < 12


def test_the_legend_names_what_can_be_seen_and_no_more() -> None:
    text = "\n".join(_drawn(run_of([ALIKE], Snapshot())))
    assert "█ compute          52 %    42.7 ms  kernels (or CPU operators) run" in text
    assert "sync" not in text


@pytest.mark.parametrize("width", [20, 39, 40, 47, 48, 79, 80, 120])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_bars_fit_the_width(width: int, ascii_only: bool) -> None:
    lines = _drawn(run_of([ALIKE, LATE], Snapshot(), step_ms=12_345.6), width, ascii_only)
    assert max(map(len, lines)) <= width
    assert any("loader" in line for line in lines)
    signs = LETTERS if ascii_only else BLOCKS
    assert any(signs["compute"] * 3 in line for line in lines)
    if ascii_only:
        "\n".join(lines).encode("ascii")


def test_a_run_without_shares_has_no_bars() -> None:
    assert _drawn(Run()) == []
