"""What every report tells, as one value; the JSON format is this, written out (a Run as reports/run.py says)."""

from __future__ import annotations

from datetime import date
from typing import Literal

import msgspec

from gpudoctor.findings import Finding
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

Verdict = Literal["ok", "findings", "not-checked"]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Who says so."""

    name: str
    version: str


class NotRead(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be judged."""

    subject: str
    """A subject of the snapshot, or `subject.part`."""
    reason: str


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that the policy keeps from counting."""

    code: str
    name: str
    where: str
    reason: str
    expires: date | None = None
    """Last day the ignore holds; None means for ever."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Fields are only ever added; `schema` goes up when one changes its meaning."""

    schema: Literal[1] = 1
    tool: Tool
    command: str
    """`check`, `profile` or `analyze`."""
    host: str | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    """Worst first."""
    not_read: tuple[NotRead, ...]
    ignored: tuple[Ignored, ...] = ()
    notes: tuple[str, ...] = ()
    """On this check itself: an ignore that has run out, a rule that failed."""
    snapshot: Snapshot
    run: Run | None = None
    """A profiled job; None for a check. `snapshot` is then its machine."""
