"""`gpudoctor check`: read this machine, judge it, tell."""

from __future__ import annotations

import os
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING

from gpudoctor.collect import PROBES, collect
from gpudoctor.commands.interpreter import choose
from gpudoctor.commands.options import CheckOptions
from gpudoctor.commands.output import check_writable, write, write_file
from gpudoctor.commands.progress import Progress
from gpudoctor.facts.expected import Expected
from gpudoctor.probes.system import System

if TYPE_CHECKING:
    from gpudoctor.commands.judging import Terms


def run(options: CheckOptions) -> int:
    """The exit code. Raises UsageError before any work, OutputError after it."""
    if options.sources:
        from gpudoctor.commands import from_text

        return from_text.run(options)
    # What the user's words mean is looked up at once, since they may be wrong; else the rules can wait.
    terms = _terms(options) if options.only or options.policy else None
    python = choose(options.python, os.environ)
    for file in (options.output.file, options.save):
        check_writable(file)
    system = System(
        python=python, quick=options.quick, timeout_s=options.timeout_s, checkpoint_dir=options.checkpoint_dir
    )
    with Progress(probe.subject for probe in PROBES if probe.quick or not options.quick) as progress:
        snapshot = collect(
            system,
            expected=terms.policy.expect.facts() if terms else Expected(),
            timeout_s=options.timeout_s,
            progress=progress.answered,
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


def _terms(options: CheckOptions) -> Terms:
    from gpudoctor.commands import judging

    return judging.terms(options)


def _import_the_rest(options: CheckOptions) -> None:
    """While the probes run: half of the time that a quick check takes is imports."""
    import_module("gpudoctor.commands.judging")
    import_module(f"gpudoctor.reports.{options.output.format.value}")
