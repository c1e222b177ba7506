"""The report as one JSON document, whole and not redacted: for machines."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.reports.document import Document


def render(document: Document) -> str:
    """Indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema of `render`; report.schema.json beside this file is a copy, kept by docs/generate.py."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Document)}
