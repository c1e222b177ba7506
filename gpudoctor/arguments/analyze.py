"""Options of `gpudoctor analyze`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpudoctor.arguments.command import Command, gate_options, output, report_options
from gpudoctor.commands.options import AnalyzeOptions, FailOn


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="traces, one a rank, or a run folder")
    gate_options(parser)
    report_options(parser)


def _work(parsed: argparse.Namespace) -> int:
    """Tell the same of torch.profiler traces, or of a run folder."""
    from gpudoctor.commands.profile import analyze

    return analyze(
        AnalyzeOptions(
            output=output(parsed),
            paths=tuple(parsed.paths),
            policy=parsed.policy,
            redact=parsed.redact,
            fail_on=FailOn(parsed.fail_on),
        )
    )


COMMAND = Command("analyze", _options, _work)
