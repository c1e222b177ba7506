"""Read a gpudoctor snapshot (`check --save`) or a JSON report, also where it stands between other text."""

from __future__ import annotations

import json
import re

from gpudoctor.snapshot import Snapshot, SnapshotError

NAME = "gpudoctor snapshot"
MOST_TRIED = 3
"""Places in a text where one could begin."""

_BEGIN = re.compile(r"\{\s{0,20}\"schema\"\s{0,4}:\s{0,4}\d")


def read(text: str) -> Snapshot | None:
    """The first one in a text; None where there is none."""
    return split(text)[0]


def split(text: str) -> tuple[Snapshot | None, str]:
    """The first one, and the text without it, since what it quotes of the machine is no output of tools.

    Raises SnapshotError where there is one that this version cannot read.
    """
    refused: SnapshotError | None = None
    for tried, begin in enumerate(_BEGIN.finditer(text)):
        if tried == MOST_TRIED:
            break
        try:
            document, end = json.JSONDecoder().raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        inner = document.get("snapshot", document)
        try:
            return Snapshot.from_json(json.dumps(inner)), text[: begin.start()] + "\n" + text[end:]
        except (SnapshotError, RecursionError) as error:
            refused = error if isinstance(error, SnapshotError) else None
    if refused is not None:
        raise refused
    return None, text
