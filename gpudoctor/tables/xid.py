"""What each Xid of the NVIDIA driver means. Rows: xid.toml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

Verdict = Literal["isolate", "service", "application", "note"]
"""`isolate`: give the board no job before the action. `service`: it may work on, and needs the action soon.
`application`: the program's fault. `note`: nothing to do."""


class Fault(msgspec.Struct, frozen=True):
    """One kind of fault, with all the numbers that report it."""

    xids: tuple[int, ...]
    verdict: Verdict
    meaning: str
    action: str
    source: str
    only_with: str | None = None
    """A word the line must hold, else it is a note."""


class Xids(msgspec.Struct, frozen=True):
    """The whole table."""

    sources: dict[str, str]
    fault: tuple[Fault, ...]


NOTE = Fault(xids=(), verdict="note", meaning="not in the table", action="look it up in NVIDIA's catalogue", source="")


@cache
def load() -> Xids:
    """The table, decoded once a process."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Xids)


def fault(xid: int, text: str | None = None) -> Fault:
    """The fault a line reports; NOTE for numbers that are not in the table and for lines that say less."""
    row = next((row for row in load().fault if xid in row.xids), NOTE)
    if row.only_with and not re.search(rf"\b{row.only_with}\b", text or ""):
        return NOTE
    return row
