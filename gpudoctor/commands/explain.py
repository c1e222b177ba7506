"""`gpudoctor explain` and `gpudoctor rules`: what is known, without looking at the machine."""

from __future__ import annotations

import os

from gpudoctor.commands.options import Format, Output
from gpudoctor.commands.output import check_writable, page_settings, write
from gpudoctor.reports import rules as reports
from gpudoctor.reports.page import Page
from gpudoctor.rules.every import ALL_RULES
from gpudoctor.selection import find


def explain(word: str, output: Output) -> int:
    """Always 0. Raises UnknownWord."""
    rule = find(word)
    check_writable(output.file)
    if output.format is Format.JSON:
        text = reports.to_json(reports.texts(rule))
    elif output.format is Format.MARKDOWN:
        text = reports.to_markdown(rule)
    else:
        text = reports.explain(Page(**page_settings(output, os.environ)), rule)
    write(output, text)
    return 0


def rules(output: Output) -> int:
    """Always 0."""
    check_writable(output.file)
    if output.format is Format.JSON:
        text = reports.to_json([reports.texts(rule) for rule in ALL_RULES])
    elif output.format is Format.MARKDOWN:
        text = reports.all_to_markdown(ALL_RULES)
    else:
        text = reports.table(Page(**page_settings(output, os.environ)), ALL_RULES)
    write(output, text)
    return 0
