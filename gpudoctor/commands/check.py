"""`gpudoctor check`: read this machine, judge it, tell."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING

from gpudoctor.collect import PROBES, collect
from gpudoctor.commands.interpreter import choose
from gpudoctor.commands.options import CheckOptions
from gpudoctor.commands.output import check_writable, write, write_file
from gpudoctor.commands.progress import Progress
from gpudoctor.errors import UsageError
from gpudoctor.facts.expected import Expected
from gpudoctor.probes.system import System

if TYPE_CHECKING:
    from gpudoctor.commands.judging import Terms
    from gpudoctor.findings import Rule
    from gpudoctor.snapshot import Snapshot


STAGES = {
    "PRE005": {"gemm"},
    "PRE006": {"gemm"},
    "PRE007": {"memory"},
    "PRE008": {"host_link"},
    "PCI002": {"host_link"},
    "NVL007": {"peer"},
    "NCC013": {"collective"},
    "NCC015": {"collective"},
    "NCC017": {"peer"},
    "SHM004": {"loader"},
    "TOR016": {"gemm", "memory", "host_link", "launch", "features", "compile", "loader", "peer", "collective"},
}
"""Code → the stages of --deep that it judges."""
TIMEOUT_S, DEEP_TIMEOUT_S = 60.0, 300.0


def run(options: CheckOptions) -> int:
    """The exit code. Raises UsageError before any work, OutputError after it."""
    if options.quick and options.deep:
        raise UsageError("--quick and --deep are two levels: choose one")
    if options.force and not options.deep:
        raise UsageError("--force loads GPUs that others use, which only --deep does")
    if options.sources and options.deep:
        raise UsageError("--deep measures this machine; pasted text (--from) cannot be measured")
    if options.sources:
        from gpudoctor.commands import from_text

        return from_text.run(options)
    # What the user's words mean is looked up at once, since they may be wrong; else the rules can wait.
    terms = _terms(options) if options.only or options.policy else None
    python = choose(options.python, os.environ)
    for file in (options.output.file, options.save):
        check_writable(file)
    timeout_s = options.timeout_s or (DEEP_TIMEOUT_S if options.deep else TIMEOUT_S)
    system = System(
        python=python,
        quick=options.quick,
        deep=options.deep,
        force=options.force,
        stages=_stages(terms.rules) if terms and options.only else None,
        timeout_s=timeout_s,
        checkpoint_dir=options.checkpoint_dir,
    )
    waited_for = (probe.subject for probe in PROBES if (probe.quick or not options.quick) and not probe.deep)
    with Progress(waited_for) as progress:
        snapshot = collect(
            system,
            expected=terms.policy.expect.facts() if terms else Expected(),
            timeout_s=timeout_s,
            progress=progress.answered,
            at=progress.at,
            meanwhile=lambda: _import_the_rest(options),
        )
    from gpudoctor.commands import judging

    terms = terms or _terms(options)
    document = judging.judge(snapshot, terms, date.today())
    if options.save:
        saved = judging.shareable(snapshot, snapshot) if options.redact else snapshot
        write_file(options.save, saved.to_json() + b"\n")
    write(options.output, judging.rendered(document, options))
    return judging.exit_code(document, terms)


def _stages(rules: Iterable[Rule[Snapshot]]) -> frozenset[str]:
    """What --only leaves to be measured."""
    return frozenset(stage for rule in rules for stage in STAGES.get(rule.code, ()))


def _terms(options: CheckOptions) -> Terms:
    from gpudoctor.commands import judging

    return judging.terms(options)


def _import_the_rest(options: CheckOptions) -> None:
    """While the probes run: half of the time that a quick check takes is imports."""
    import_module("gpudoctor.commands.judging")
    import_module(f"gpudoctor.reports.{options.output.format.value}")
