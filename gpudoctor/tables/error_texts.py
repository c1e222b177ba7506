"""Error texts of jobs: how each is recognised, what it means, which finding it leads to. Rows: error_texts.toml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One wording of a message."""

    kind: str
    needle: str
    """Letters that stand in every such message."""
    pattern: str
    """Regular expression over a line (and what follows it) whose runs of white space are single blanks."""
    also: tuple[str, ...] = ()
    """More expressions, each searched on its own, for what the message may hold besides."""
    code: str
    """Of the finding it leads to, or helps to find."""
    error: int | None = None
    """Number of the CUDA error it stands for."""
    cause: str
    fix: str | None = None
    """Where the finding's own is not the right one."""
    source: str


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table."""

    sources: dict[str, str]
    text: tuple[Text, ...]


@cache
def load() -> Texts:
    """The table, decoded once a process."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Texts)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Patterns are compiled when a text first holds their needle."""
    return re.compile(pattern)


def cause(kind: str, error: int | None = None) -> Text | None:
    """The first row of a kind, of a certain CUDA error where one is given."""
    rows = [row for row in load().text if row.kind == kind]
    return next((row for row in rows if error is not None and row.error == error), next(iter(rows), None))
