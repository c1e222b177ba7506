"""`gpudoctor check`: read this machine, judge it, tell."""

from __future__ import annotations

import os
from datetime import date
from typing import TypeVar

from gpudoctor import __version__, gate
from gpudoctor.collect import PROBES, collect
from gpudoctor.commands.interpreter import choose
from gpudoctor.commands.options import CheckOptions, FailOn, Format
from gpudoctor.commands.output import check_writable, page_settings, write, write_file
from gpudoctor.commands.progress import Progress
from gpudoctor.findings import Rule, Severity, diagnose
from gpudoctor.policy import Policy, load
from gpudoctor.probes.system import System
from gpudoctor.reports.document import Document, Tool
from gpudoctor.selection import select
from gpudoctor.snapshot import Snapshot

T = TypeVar("T")


def run(options: CheckOptions) -> int:
    """The exit code. Raises UsageError, UnknownWord and PolicyError before any work, OutputError after it."""
    rules = select(options.only)
    policy = load(options.policy) if options.policy else Policy()
    python = choose(options.python, os.environ)
    for file in (options.output.file, options.save):
        check_writable(file)
    system = System(
        python=python, quick=options.quick, timeout_s=options.timeout_s, checkpoint_dir=options.checkpoint_dir
    )
    subjects = [probe.subject for probe in PROBES if probe.quick or not options.quick]
    with Progress(subjects) as progress:
        snapshot = collect(
            system, expected=policy.expect.facts(), timeout_s=options.timeout_s, progress=progress.answered
        )
    fail_on = None if options.fail_on is FailOn.NEVER else Severity(options.fail_on.value)
    document = judge(snapshot, rules, policy, fail_on, date.today())
    if options.save:
        write_file(options.save, (_shareable(snapshot, snapshot) if options.redact else snapshot).to_json() + b"\n")
    write(options.output, _rendered(document, options))
    return gate.exit_code(document.verdict, document.findings, fail_on)


def judge(
    snapshot: Snapshot, rules: tuple[Rule[Snapshot], ...], policy: Policy, fail_on: Severity | None, today: date
) -> Document:
    """What there is to tell of a machine."""
    diagnosis = diagnose(snapshot, rules)
    passed = gate.apply(policy, diagnosis.findings, today)
    broken = (f"rule {code} failed, a defect of gpudoctor: {error}" for code, error in diagnosis.broken.items())
    return Document(
        tool=Tool(name="gpudoctor", version=__version__),
        command="check",
        host=snapshot.host.name if snapshot.host else None,
        verdict=gate.verdict(policy, snapshot, passed.findings, fail_on),
        findings=passed.findings,
        not_read=gate.not_read(policy, snapshot),
        ignored=passed.ignored,
        notes=(*passed.notes, *broken),
        snapshot=snapshot,
    )


def _rendered(document: Document, options: CheckOptions) -> str:
    """Each format is imported only where it is asked for."""
    if options.output.format is Format.JSON:
        from gpudoctor.reports import json

        return json.render(document)
    if options.output.format is Format.MARKDOWN:
        from gpudoctor.reports import markdown

        return markdown.render(_shareable(document, document.snapshot) if options.redact else document)
    from gpudoctor.reports import terminal

    return terminal.render(document, **page_settings(options.output, os.environ))


def _shareable(value: T, machine: Snapshot) -> T:
    from gpudoctor.redaction import redacted

    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    users.add(os.path.basename(os.environ.get("HOME", "").rstrip("/")))  # noqa: PTH119 - a name, not a file
    return redacted(value, machine, sorted(users - {""}))
