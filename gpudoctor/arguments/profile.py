"""Options of `gpudoctor profile`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpudoctor.arguments.command import (
    VALUES,
    Command,
    count,
    gate_options,
    output,
    python_option,
    report_options,
    seconds,
)
from gpudoctor.commands.options import FailOn, ProfileOptions

VALUED = VALUES | {"--nproc-per-node", "--steps", "--wait", "--stall-timeout", "--out"}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpudoctor profile [OPTIONS] [SCRIPT | -m MODULE | -- LAUNCHER] [ARGS ...]"
    parser.add_argument("--nproc-per-node", metavar="N", type=count, help="run the script under torchrun, N processes")
    parser.add_argument("--steps", metavar="N", type=count, default=6, help="steps to trace (default: 6)")
    parser.add_argument("--wait", metavar="N", type=count, default=5, help="steps of warm-up (default: 5)")
    parser.add_argument("--run-to-end", action="store_true", help="let the job go on once enough was seen")
    parser.add_argument(
        "--stall-timeout",
        metavar="S",
        type=seconds,
        default=300.0,
        help="without a step for so long the job hangs (default: 300)",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="run folder, new or empty (default: gpudoctor-runs/TIME)"
    )
    python_option(parser)
    gate_options(parser)
    report_options(parser)


def _work(parsed: argparse.Namespace) -> int:
    """Run a training job, unedited, and tell where each step's time goes.

    Without a script a small DDP Transformer is trained. What follows SCRIPT is
    the script's own; a launcher's line stands after `--`:
    gpudoctor profile -- torchrun --nproc-per-node 4 train.py --lr 1e-3
    """
    from gpudoctor.commands.profile import run

    return run(
        ProfileOptions(
            output=output(parsed),
            words=tuple(parsed.words),
            processes=parsed.nproc_per_node,
            steps=parsed.steps,
            wait=parsed.wait,
            run_to_end=parsed.run_to_end,
            stall_timeout_s=parsed.stall_timeout,
            out=parsed.out,
            python=parsed.python,
            policy=parsed.policy,
            redact=parsed.redact,
            fail_on=FailOn(parsed.fail_on),
        )
    )


COMMAND = Command("profile", _options, _work, VALUED)
