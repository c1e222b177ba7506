"""Options of `gpudoctor check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpudoctor.arguments.command import Command, gate_options, output, python_option, report_options, seconds
from gpudoctor.commands.options import CheckOptions, FailOn


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="files and NVML alone: no import of torch, under a second")
    parser.add_argument(
        "--deep", action="store_true", help="make the hardware work as well: rates, links, wrong results; a minute"
    )
    parser.add_argument("--force", action="store_true", help="with --deep: load GPUs that others use, too")
    parser.add_argument(
        "--only",
        metavar="CODES",
        action="append",
        default=[],
        help="codes, names or areas, comma-separated (default: all)",
    )
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="FILE",
        action="extend",
        nargs="+",
        default=[],
        help="judge pasted text instead of this machine; - is standard input",
    )
    python_option(parser)
    parser.add_argument(
        "--save", metavar="FILE", type=Path, help="write all facts there, as JSON without names and secrets"
    )
    parser.add_argument("--checkpoint-dir", metavar="DIR", type=Path, help="a folder the job writes to, looked at too")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="time for all of it (default: 60, deep 300)")
    gate_options(parser)
    report_options(parser)


def _work(parsed: argparse.Namespace) -> int:
    """Tell what is wrong with this machine for training, and its cure."""
    from gpudoctor.commands.check import run

    return run(
        CheckOptions(
            output=output(parsed),
            sources=tuple(parsed.sources),
            quick=parsed.quick,
            deep=parsed.deep,
            force=parsed.force,
            only=tuple(parsed.only),
            python=parsed.python,
            policy=parsed.policy,
            save=parsed.save,
            redact=parsed.redact,
            checkpoint_dir=parsed.checkpoint_dir,
            timeout_s=parsed.timeout,
            fail_on=FailOn(parsed.fail_on),
        )
    )


COMMAND = Command("check", _options, _work)
