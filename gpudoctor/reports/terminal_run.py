"""The part of the terminal's report that a profiled job has and a machine has not."""

from __future__ import annotations

from gpudoctor.reports.bars import draw
from gpudoctor.reports.job import ending, in_a_line
from gpudoctor.reports.page import Page
from gpudoctor.reports.steps import pace
from gpudoctor.run import Run

QUOTED = 20
"""Lines of a stack, or of what a job wrote, that fit a screen beside the rest."""


def ended(page: Page, run: Run) -> None:
    """What matters more than any figure: the job failed or hung."""
    ended = ending(run)
    if ended is None:
        return
    page.paragraph(f"✖ {ended.text}", "bold red")
    _quote(page, "wrote", ended.error, last=True)
    for where, stack in ended.stacks:
        page.entry("stack", f"{where}, innermost call first")
        _quote(page, "", stack)


def _quote(page: Page, label: str, text: str, *, last: bool = False) -> None:
    """A few lines of the job's own words, the first of them or the last."""
    told = text.splitlines()
    left_out = len(told) - QUOTED
    if left_out > 0:
        told = [f"… {left_out} lines before", *told[-QUOTED:]] if last else [*told[:QUOTED], f"… {left_out} lines more"]
    for number, line in enumerate(told):
        page.entry(label if number == 0 else "", line)


def steps(page: Page, run: Run) -> None:
    """How the job was set up, how long a step takes and what it goes to."""
    if text := in_a_line(run):
        page.entry("job", text)
    page.entry("step", pace(run))
    draw(page, run)
