"""Where a step goes, drawn as bars of blocks on a terminal."""

from __future__ import annotations

from gpudoctor.facts.run import StepShares
from gpudoctor.reports.figures import milliseconds, percent
from gpudoctor.reports.page import NARROW, Page
from gpudoctor.reports.steps import MANY, NAMES, apart, cells, outstanding, parts
from gpudoctor.run import Run

# Told apart without colours too: shades, stripes, half heights, dots.
BLOCKS = dict(zip(("compute", "communication", "copies", "loader", "sync", "launch", "host"), "█▓▒░▌▄·", strict=True))
LETTERS = dict(zip(BLOCKS, "#=+LSl.", strict=True))
STYLES = {
    "compute": "green",
    "communication": "magenta",
    "copies": "blue",
    "loader": "yellow",
    "sync": "red",
    "launch": "cyan",
    "host": "bright_black",
}
INDENT = 13
"""Width of the labels' column."""
LEAST = 0.005
"""Shares below it have no line in the legend."""
LONGEST = 80
"""Cells of a bar, with the length behind it."""
TABLE = 48
"""Columns that the legend's figures need."""
WITH_MEANING = TABLE + 1 + max(map(len, NAMES.values()))
"""Columns that its words need beside them."""


def draw(page: Page, run: Run) -> None:
    """One bar for the mean, one for each rank where they differ, and what the blocks mean; nothing without shares."""
    if run.shares is None:
        return
    several = apart(run)
    ranks = outstanding(run) if several else ()
    _bar(page, f"mean of {len(run.ranks)}" if several else "goes to", run.shares, run.step_ms if several else None)
    for rank, why in ranks:
        if rank.shares is not None:
            _bar(page, f"rank {rank.rank}", rank.shares, rank.step_ms, why)
    if several and len(run.ranks) > MANY:
        page.paragraph(f"{len(run.ranks) - len(ranks)} other ranks are like the mean", label=" " * INDENT)
    _legend(page, run.shares, run.step_ms, [rank.shares for rank, _ in ranks if rank.shares is not None])


def _bar(page: Page, label: str, shares: StepShares, step_ms: float | None, why: str = "") -> None:
    length = milliseconds(step_ms) if step_ms is not None else ""
    signs = LETTERS if page.ascii_only else BLOCKS
    if page.width < NARROW:
        page.paragraph(f"{label} {length} {why}")
        page.pieces(_blocks(shares, page.width, signs))
        return
    behind = f"{length:>9}{' ' * bool(why)}{why:<8}" if length else ""
    width = min(page.width - INDENT, LONGEST) - (18 if length else 0)
    page.pieces([(f"  {label:<11}", "dim"), *_blocks(shares, width, signs), (behind, "")])


def _blocks(shares: StepShares, width: int, signs: dict[str, str]) -> list[tuple[str, str]]:
    return [(signs[name] * number, STYLES[name]) for name, number in cells(shares, width).items() if number]


def _legend(page: Page, mean: StepShares, step_ms: float | None, others: list[StepShares]) -> None:
    """Shares of the mean. One that only a rank has is named too, since its bar shows it."""
    signs = LETTERS if page.ascii_only else BLOCKS
    for part in parts(mean, step_ms):
        if max(part.share, *(getattr(shares, part.name) for shares in others), 0.0) < LEAST:
            continue
        length = milliseconds(part.length_ms) if part.length_ms is not None else ""
        sign = (f"{signs[part.name]} ", STYLES[part.name])
        if page.width < TABLE:
            page.paragraph(
                f"{part.name} {percent(part.share)} {length}", label=f"{sign[0]:>{INDENT}}", label_style=sign[1]
            )
        else:
            figures = f"{part.name:<14}{percent(part.share):>7}{length:>11}"
            meaning = f"  {NAMES[part.name]}" if page.width >= WITH_MEANING else ""
            page.pieces([(" " * INDENT, ""), sign, (figures, ""), (meaning, "dim")])
