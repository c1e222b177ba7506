"""Environment variables of NCCL and torch.distributed: names that are read, old names, values for debugging."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One documented name."""

    name: str
    since: str | None = None
    """First NCCL that reads it; None where long there, or not known."""
    debug: tuple[str, ...] = ()
    """Values, upper case, meant for a search for errors, which cost speed."""
    effect: str | None = None
    """What such a value does."""
    source: str


class Renamed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An old name."""

    name: str
    to: str | None = None
    """What is read instead (a name, or a name with a value); None where nothing is."""
    status: str
    """Since when, such as `renamed in 2.5`."""
    source: str


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the socket transport, which clamps what goes beyond."""

    socket_threads: int
    """Most helper threads a connection."""
    sockets: int
    """Most sockets a connection: threads × sockets a thread."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table."""

    variable: tuple[Variable, ...]
    renamed: tuple[Renamed, ...]
    undocumented: tuple[str, ...]
    foreign_prefixes: tuple[str, ...]
    foreign_names: tuple[str, ...]
    limits: Limits
    sources: dict[str, str]

    def known(self) -> frozenset[str]:
        """Every name that NCCL or torch reads or has read."""
        old = (row.name for row in self.renamed)
        return frozenset((*(row.name for row in self.variable), *old, *self.undocumented))

    def foreign(self, name: str) -> bool:
        """A plugin, another build of NCCL or a build system reads it."""
        return name in self.foreign_names or name.startswith(self.foreign_prefixes)


@cache
def table() -> Table:
    """Read once, when a rule first asks."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Table)
