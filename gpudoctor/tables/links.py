"""How fast the links between boards are by their data sheets."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """All boards whose name shows the pattern."""

    name: str
    """Regular expression, searched in the name NVML or torch gives."""
    nvlink_gb_s: float
    """One way, all links of a board together."""
    source: str


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """The table."""

    board: tuple[Board, ...]

    def nvlink(self, name: str) -> Board | None:
        """None for a board without NVLink, or which may be sold without it, or which is not known."""
        return next((board for board in self.board if re.search(board.name, name)), None)


@cache
def load() -> Links:
    """The table of links.toml."""
    return msgspec.toml.decode(Path(__file__).with_name("links.toml").read_bytes(), type=Links)
