"""Error texts that were recognised: in a paste, or in what a job wrote before it died."""

from __future__ import annotations

from gpudoctor.facts.base import Fact, Subject


class ErrorText(Fact, frozen=True, kw_only=True):
    """One message, with the figures and words it holds."""

    kind: str
    """Of the table of error texts: `out_of_memory`, `loader_worker_killed`, …"""
    line: str
    """Where it was found, cut to a readable length."""
    rank: int | None = None
    """Of the process that wrote it; None where the line does not begin with it."""
    numbers: dict[str, int] = {}
    """Figures by name, sizes in bytes: `tried_bytes`, `total_bytes`, `reserved_unallocated_bytes`, `gpu`, …"""
    words: dict[str, str] = {}
    """What else it names: `signal`, `function`, `symbol`, `library`, …"""
    count: int = 1
    """Lines that say the same for the same rank."""


class Errors(Subject, frozen=True, kw_only=True):
    """In the order of the text. Empty: a text was read, and holds none that is known."""

    recognised: tuple[ErrorText, ...] = ()

    def of(self, *kinds: str) -> tuple[ErrorText, ...]:
        """Those of some kinds."""
        return tuple(text for text in self.recognised if text.kind in kinds)
