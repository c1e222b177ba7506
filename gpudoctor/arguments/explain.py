"""Options of `gpudoctor explain`."""

from __future__ import annotations

import argparse

from gpudoctor.arguments.command import Command, output, report_options


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="CODE|NAME", help="such as SHM001 or shm-too-small")
    report_options(parser)


def _work(parsed: argparse.Namespace) -> int:
    """Tell all about one finding: when it fires, why it matters, its cure."""
    from gpudoctor.commands.explain import explain

    return explain(parsed.rule, output(parsed))


COMMAND = Command("explain", _options, _work)
