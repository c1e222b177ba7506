"""The second half of a check: from a snapshot to a report and an exit code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from typing import TypeVar

import msgspec

from gpudoctor import __version__, gate
from gpudoctor.commands.options import CheckOptions, FailOn, Format, JudgeOptions
from gpudoctor.commands.output import page_settings
from gpudoctor.findings import Rule, Severity, diagnose
from gpudoctor.policy import Policy, load
from gpudoctor.reports.document import Document, Tool
from gpudoctor.selection import select
from gpudoctor.snapshot import Snapshot

T = TypeVar("T")


class Terms(msgspec.Struct, frozen=True):
    """What a machine is judged by."""

    rules: tuple[Rule[Snapshot], ...]
    policy: Policy
    fail_on: Severity | None
    """None means never."""
    asks_all: bool = True
    """No choice of rules was made (--only)."""


def terms(options: JudgeOptions) -> Terms:
    """As the user asked. Raises UsageError."""
    only = options.only if isinstance(options, CheckOptions) else ()
    return Terms(
        rules=select(only),
        policy=load(options.policy) if options.policy else Policy(),
        fail_on=None if options.fail_on is FailOn.NEVER else Severity(options.fail_on.value),
        asks_all=not only,
    )


def judge(snapshot: Snapshot, terms: Terms, today: date) -> Document:
    """What there is to tell of a machine."""
    diagnosis = diagnose(snapshot, terms.rules)
    passed = gate.apply(terms.policy, diagnosis.findings, today)
    broken = (f"rule {code} failed, a defect of gpudoctor: {error}" for code, error in diagnosis.broken.items())
    return Document(
        tool=Tool(name="gpudoctor", version=__version__),
        command="check",
        host=snapshot.host.name if snapshot.host else None,
        verdict=gate.verdict(terms.policy, snapshot, passed.findings, terms.fail_on),
        findings=passed.findings,
        not_read=gate.not_read(terms.policy, snapshot),
        ignored=passed.ignored,
        notes=(*passed.notes, *broken),
        snapshot=snapshot,
    )


def rendered(document: Document, options: JudgeOptions) -> str:
    """Each format is imported only where it is asked for."""
    if options.output.format is Format.JSON:
        from gpudoctor.reports import json

        return json.render(document)
    if options.output.format is Format.HTML:
        from gpudoctor.reports import html

        return html.render(shareable(document, document.snapshot) if options.redact else document)
    if options.output.format is Format.GITHUB:
        from gpudoctor.reports import github

        return github.render(shareable(document, document.snapshot) if options.redact else document)
    if options.output.format is Format.MARKDOWN:
        from gpudoctor.reports import markdown

        return markdown.render(shareable(document, document.snapshot) if options.redact else document)
    from gpudoctor.reports import terminal

    return terminal.render(document, **page_settings(options.output, os.environ))


def shareable(value: T, machine: Snapshot) -> T:
    """Without names and secrets, those of the user who runs this included."""
    from gpudoctor.redaction import redacted

    return redacted(value, machine, sorted(set(_users()) - {""}))


def exit_code(document: Document, terms: Terms) -> int:
    """Of the verdict and of --fail-on."""
    return gate.exit_code(document.verdict, document.findings, terms.fail_on)


def _users() -> Iterable[str]:
    yield from (os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER"))
    yield os.path.basename(os.environ.get("HOME", "").rstrip("/"))  # noqa: PTH119 - a name, not a file
