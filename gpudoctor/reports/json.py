"""The report as one JSON document, not redacted: for machines."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.reports.document import Document
from gpudoctor.reports.run import RunReport, told


class Report(Document, frozen=True, kw_only=True):
    """A Document as it is written: its run without the columns that fill megabytes."""

    run: RunReport | None = None  # type: ignore[assignment] # never read through Document
    """A profiled job; None for a check. The machine it ran on is `snapshot`."""


def render(document: Document) -> str:
    """Indented by two, with a newline at the end."""
    kept = {name: getattr(document, name) for name in document.__struct_fields__ if name != "run"}
    report = Report(**kept, run=told(document.run) if document.run else None)
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema of `render`; report.schema.json beside this file is a copy, kept by docs/generate.py."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}
