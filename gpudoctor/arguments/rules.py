"""Options of `gpudoctor rules`."""

from __future__ import annotations

import argparse

from gpudoctor.arguments.command import Command, output, report_options


def _work(parsed: argparse.Namespace) -> int:
    """List every finding there is, one line each."""
    from gpudoctor.commands.explain import rules

    return rules(output(parsed))


COMMAND = Command("rules", report_options, _work)
