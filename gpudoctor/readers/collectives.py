"""Read what torch's watchdog and gloo say of collectives that did not end, or on which ranks do not agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.facts.nccl_log import Mismatch, Timeout

WORDS = (
    "Watchdog caught collective",
    "detected by watchdog at work",
    "Timeout at NCCL work",
    "collective timeout from",
    "mismatch between collectives",
    "monitoredBarrier",
    "Timed out waiting",
    "didn't join collective",
    "watchdog got stuck for",
)
"""Each line of interest holds one."""
EVEN = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
"""Collectives whose sizes are the same on all ranks."""
POINT_TO_POINT = frozenset({"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"})
MOST_TIMEOUTS, MOST_GROUPS = 4096, 16

_WHO = re.compile(
    r"\[(?:PG (?:ID )?(?P<id>\d{1,6}) ?(?:PG GUID (?P<guid>[\w()]{1,60}))?[^\]]{0,60})?Rank (?P<rank>\d{1,6})\]"
)
_PREFIX = re.compile(r"\[rank(\d{1,6})\]")
_CAUGHT = re.compile(
    r"Watchdog caught collective operation timeout: Work\w{2,10}\((?P<fields>.{0,400}?)\) ran for (?P<ran>\d{1,12})"
)
_FIELD = re.compile(r"(SeqNum|OpType|NumelIn|NumelOut|Timeout\(ms\))=(\w{1,40})")
_AT_WORK = re.compile(
    r"(?:watchdog at work|Timeout at NCCL work): (?P<sequence>\d{1,12}),? last enqueued NCCL work: "
    r"(?P<enqueued>-?\d{1,12}),? last completed NCCL work: (?P<completed>-?\d{1,12})"
)
_DUMP = re.compile(
    r"collective timeout from +(?:rank (?P<origin>\d{1,6})|this local rank).{0,100}?"
    r"[Ll]ast enqueued \w{2,10} work: (?P<enqueued>-?\d{1,12}), last completed \w{2,10} work: (?P<completed>-?\d{1,12})"
)
_GLOO = re.compile(r"Timed out waiting (?P<ms>\d{1,12})ms for (?P<what>\w{2,12}) operation to complete")
_BARRIER = re.compile(r"Ranks? (?P<ranks>[\d, ]{1,300}) failed to pass monitoredBarrier in (?P<ms>\d{1,12}) ?ms")
_FINGERPRINTS = re.compile(
    r"Rank (?P<one>\d{1,6}) is running collective: (?P<first>\w{1,30}(?:\(.{0,300}?)?),? but Rank (?P<other>\d{1,6}) "
    r"is running collective: (?P<second>.{1,300})"
)
_OPERATION = re.compile(r"OpType=(\w{1,40})")
_SHAPE = re.compile(r"TensorShape=(\[[\d, ]{0,80}\])")
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d{1,6}) ?(?:seconds|s\b)")
_LATE = re.compile(r"\[(?P<ranks>[\d, ]{1,300})\] finished collective #\d{1,12}, but didn't join collective")


@dataclass
class Watched:
    """Gathers line by line."""

    mismatches: dict[str, Mismatch] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    _timeouts: dict[tuple[int | None, int | None], list[tuple[str | None, dict[str, Any]]]] = field(
        default_factory=dict
    )
    """By rank and number: the group, and what is told."""
    _origins: set[int] = field(default_factory=set)

    def take(self, line: str) -> None:
        """Whatever the line holds of it."""
        if not any(word in line for word in WORDS):
            return
        who, prefix = _WHO.search(line), _PREFIX.search(line)
        rank = int(who["rank"]) if who else int(prefix[1]) if prefix else None
        group = (who["guid"] or who["id"]) if who else None
        if match := _CAUGHT.search(line):
            self._caught(rank, group, match)
        elif match := _AT_WORK.search(line):
            newest = {"last_enqueued": int(match["enqueued"]), "last_completed": int(match["completed"])}
            self._add(rank, group, int(match["sequence"]), newest)
        elif match := _DUMP.search(line):
            origin = int(match["origin"]) if match["origin"] else rank
            if origin is not None:
                self._origins.add(origin)
        elif match := _GLOO.search(line):
            self._add(rank, "gloo", None, {"operation": match["what"], "timeout_ms": int(match["ms"])})
        elif match := _BARRIER.search(line):
            self.late.update(int(part) for part in re.findall(r"\d{1,6}", match["ranks"]))
            self._add(rank, None, None, {"operation": "monitored barrier", "timeout_ms": int(match["ms"])})
        elif match := _STUCK.search(line):
            self._add(rank, group, None, {"timeout_ms": 1000 * int(match["seconds"])})
        elif match := _LATE.search(line):
            self.late.update(int(part) for part in re.findall(r"\d{1,6}", match["ranks"]))
        elif match := _FINGERPRINTS.search(line):
            self._differ(match)

    def timeouts(self) -> tuple[Timeout, ...]:
        """In the order of the text; those only heard of where nobody told of its own."""
        if not self._timeouts:
            return tuple(Timeout(rank=rank) for rank in sorted(self._origins))
        return tuple(
            Timeout(rank=rank, group=group, sequence=sequence, **told)
            for (rank, sequence), groups in self._timeouts.items()
            for group, told in groups
        )

    def _add(self, rank: int | None, group: str | None, sequence: int | None, told: dict[str, Any]) -> None:
        """One line names the group and another does not: the same rank and number are the same collective."""
        if (rank, sequence) not in self._timeouts and len(self._timeouts) >= MOST_TIMEOUTS:
            return
        groups = self._timeouts.setdefault((rank, sequence), [])
        for index, (known, earlier) in enumerate(groups):
            if group is None or known in {None, group}:
                groups[index] = (known or group, {**earlier, **told})
                return
        if len(groups) < MOST_GROUPS:
            groups.append((group, told))

    def _caught(self, rank: int | None, group: str | None, match: re.Match[str]) -> None:
        fields = dict(_FIELD.findall(match["fields"]))
        names = {"elements_in": "NumelIn", "elements_out": "NumelOut", "timeout_ms": "Timeout(ms)"}
        told: dict[str, Any] = {
            name: int(fields[printed]) for name, printed in names.items() if fields.get(printed, "").isdecimal()
        }
        told |= {"operation": fields.get("OpType"), "ran_ms": int(match["ran"])}
        sequence = fields.get("SeqNum", "")
        self._add(rank, group, int(sequence) if sequence.isdecimal() else None, told)

    def _differ(self, match: re.Match[str]) -> None:
        sides = [_fingerprint(match[name]) for name in ("first", "second")]
        seen = f"rank {match['one']} in {sides[0]}, rank {match['other']} in {sides[1]}"
        self.mismatches.setdefault(seen, Mismatch(seen=seen, ranks=(int(match["one"]), int(match["other"]))))


def _fingerprint(text: str) -> str:
    """`ALLREDUCE [25]`."""
    operation, shape = _OPERATION.search(text), _SHAPE.search(text)
    name = operation[1] if operation else text.split("(")[0].strip(" .,")[:40]
    return f"{name} {shape[1]}" if shape else name


def different(timeouts: tuple[Timeout, ...]) -> Iterator[Mismatch]:
    """Ranks that wait in different collectives under one number of one group.

    Numbers count within a group, so groups must be known to be one: by name, or since each rank waits in one alone.
    """
    told = [item for item in timeouts if item.sequence is not None and item.operation and item.rank is not None]
    ranks = [item.rank for item in told if item.group is None]
    alone = len(ranks) == len(set(ranks))
    by_number: dict[tuple[str | None, int | None], list[Timeout]] = {}
    for item in told:
        if item.operation not in POINT_TO_POINT and (item.group is not None or alone):
            by_number.setdefault((item.group, item.sequence), []).append(item)
    for (_, sequence), items in by_number.items():
        first = items[0]
        other = next((item for item in items[1:] if _unlike(first, item)), None)
        if other is not None:
            yield Mismatch(
                seen=f"number {sequence}: rank {first.rank} in {_call(first)}, rank {other.rank} in {_call(other)}",
                ranks=tuple(rank for item in (first, other) if (rank := item.rank) is not None),
                certain=first.group is not None,
            )


def _unlike(one: Timeout, other: Timeout) -> bool:
    if one.operation != other.operation:
        return True
    return one.operation in EVEN and (one.elements_in, one.elements_out) != (other.elements_in, other.elements_out)


def _call(item: Timeout) -> str:
    elements = "" if item.elements_in is None else f" of {item.elements_in} elements"
    return f"{item.operation}{elements}"
