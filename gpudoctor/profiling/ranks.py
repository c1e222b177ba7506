"""All ranks beside each other: who is late, which links are slow, whose GPU is slow, who has more to do.

None of it needs a common clock. A collective ends for all its members at once, so the last to arrive hardly waits:
the least duration over the members is the transfer, and what a member spends beyond it is waiting for the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudoctor.facts.run import Arrival, Collectives, Link, Rank
from gpudoctor.profiling.intervals import Ints, Mask, length, subtract, union

GRAIN_NS = 5_000
"""Differences of arrival below this are jitter of kernel starts, and nobody's fault."""
LARGE_BYTES = 4 << 20
"""From here on a ring is bound by bandwidth rather than latency (nccl-tests on NVLink and InfiniBand systems)."""
POINT_TO_POINT = ("send", "recv", "sendrecv")
FACTORS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
"""Bus bandwidth = bytes ÷ time × factor × (n - 1) ÷ n; other operations have factor 1 and no (n - 1) ÷ n.

Source: nccl-tests, doc/PERFORMANCE.md.
"""


@dataclass(frozen=True)
class Meeting:
    """The collectives of one group that all its members recorded, as a table of one row a member."""

    group: str
    members: tuple[int, ...]
    """Ranks, in order."""
    names: list[str]
    """Operation of each column."""
    start: Ints
    """By each member's own clock."""
    duration: Ints
    exposed: Ints
    bytes: list[int | None]
    before: dict[str, Ints]

    @cached_property
    def transfer(self) -> Ints:
        """Of each collective."""
        least: Ints = self.duration.min(axis=0)
        return least

    @cached_property
    def wait(self) -> Ints:
        """Of each member at each collective."""
        return self.duration - self.transfer

    @cached_property
    def one_by_one(self) -> bool:
        """No collective begins before the one before it has ended, as on one stream. gloo runs several at once."""
        ends = self.start + self.duration
        return bool((self.start[:, 1:] >= ends[:, :-1]).all())

    def transfer_ns(self, chosen: Mask) -> int:
        """Time in which any of these is transferred."""
        if self.one_by_one:
            return int(self.transfer[chosen].sum())
        ends = (self.start + self.duration)[0, chosen]
        return length(union(ends - self.transfer[chosen], ends))

    def wait_ns(self, row: int, chosen: Mask) -> int:
        """Time in which this member waits at any of these and transfers nothing: of several that wait for the same
        late member at once, it counts once."""
        if self.one_by_one:
            return int(self.wait[row, chosen].sum())
        waiting = union(self.start[row, chosen], (self.start[row] + self.wait[row])[chosen])
        transferring = union(self.start[row] + self.wait[row], self.start[row] + self.duration[row])
        return length(subtract(waiting, transferring))


def meetings(ranks: Sequence[Rank]) -> tuple[Meeting, ...]:
    """One for each process group that at least two of the ranks have collectives of."""
    by_group: dict[tuple[str, tuple[int, ...] | None], dict[int, Collectives]] = {}
    for rank in ranks:
        for series in rank.collectives:
            by_group.setdefault((series.group, series.ranks), {})[rank.rank] = series
    found = (_meeting(group, members, series) for (group, members), series in by_group.items() if len(series) > 1)
    return tuple(meeting for meeting in found if meeting is not None)


def _meeting(group: str, members: tuple[int, ...] | None, series: dict[int, Collectives]) -> Meeting | None:
    """Match by step and by order in the step. Steps of which members recorded different numbers are left out.

    A group of which a member's trace is missing is matched all the same: the last to arrive may then be unknown.
    """
    order = sorted(series)
    pairs_only = len(members or order) == 2
    places = [_places(series[rank], pairs_only) for rank in order]
    columns: list[list[int]] = [[] for _ in order]
    for step in sorted(set.intersection(*(set(own) for own in places))):
        here = [own[step] for own in places]
        same = len({tuple(series[rank].name[at] for at in own) for rank, own in zip(order, here, strict=True)}) == 1
        named = len({series[rank].names for rank in order}) == 1
        if len({len(own) for own in here}) == 1 and (same or not named):
            for column, own in zip(columns, here, strict=True):
                column.extend(own)
    if not columns[0]:
        return None

    def table(pick: str) -> Ints:
        rows = (np.array(getattr(series[rank], pick), dtype=np.int64) for rank in order)
        return np.stack([row[at] for row, at in zip(rows, columns, strict=True)])

    first = series[order[0]]
    shares = {name for rank in order for name in series[rank].before_ns}
    return Meeting(
        group=group,
        members=tuple(order),
        names=[first.names[first.name[at]] for at in columns[0]],
        start=table("start_ns"),
        duration=table("duration_ns"),
        exposed=table("exposed_ns"),
        bytes=[first.bytes[at] for at in columns[0]],
        before={
            name: np.stack([_before(series[rank], name)[at] for rank, at in zip(order, columns, strict=True)])
            for name in sorted(shares)
        },
    )


def _places(series: Collectives, pairs_only: bool) -> dict[int, list[int]]:
    """Step → places of its collectives. Sends and receives meet one partner, which only a group of two tells."""
    places: dict[int, list[int]] = {}
    for at, (step, name) in enumerate(zip(series.step, series.name, strict=True)):
        if pairs_only or series.names[name] not in POINT_TO_POINT:
            places.setdefault(step, []).append(at)
    return places


def _before(series: Collectives, name: str) -> Ints:
    return np.array(series.before_ns.get(name) or [0] * len(series.step), dtype=np.int64)


def clocks_ahead(ranks: Sequence[Rank], met: Sequence[Meeting]) -> dict[int, int]:
    """How far each rank's clock is ahead of the first rank's: a collective ends for all its members at once."""
    bases = {rank.rank: rank.clock_base_ns or 0 for rank in ranks}
    ahead = {ranks[0].rank: 0} if ranks else {}
    found = True
    while found:
        found = False
        for meeting in met:
            known = [row for row, member in enumerate(meeting.members) if member in ahead]
            if not known or len(known) == len(meeting.members):
                continue
            ends = meeting.start + meeting.duration
            reference = meeting.members[known[0]]
            for row, member in enumerate(meeting.members):
                apart = int(np.median(ends[row] - ends[known[0]])) + bases[member] - bases[reference]
                ahead.setdefault(member, ahead[reference] + apart)
            found = True
    return ahead


def arrivals(ranks: Sequence[Rank], met: Sequence[Meeting]) -> tuple[Arrival, ...]:
    """One a rank that met others, in order of rank."""
    steps = min((rank.steps or 1 for rank in ranks), default=1)
    by_rank: dict[int, list[Arrival]] = {}
    for meeting in met:
        for row, rank in enumerate(meeting.members):
            by_rank.setdefault(rank, []).append(_arrival(meeting, row, rank, steps))
    return tuple(_summed(rank, by_rank[rank]) for rank in sorted(by_rank))


def _arrival(meeting: Meeting, row: int, rank: int, steps: int) -> Arrival:
    others = np.delete(np.arange(len(meeting.members)), row)
    contested = meeting.wait.sum(axis=0) > GRAIN_NS * len(others)
    last = (meeting.duration.argmin(axis=0) == row) & contested
    caused = sum(meeting.wait_ns(other, last) for other in others.tolist()) / len(others) if last.any() else 0.0
    every = np.ones_like(last)
    waited, summed = meeting.wait_ns(row, every), int(meeting.wait[row].sum())
    exposed = int(np.minimum(meeting.wait[row], meeting.exposed[row]).sum())
    extra = {}
    for name, spent in meeting.before.items():
        beyond = spent[row] - np.median(spent[others], axis=0)
        if (total := float(beyond[last].sum())) > 0:
            extra[name] = total / steps / 1e6
    return Arrival(
        rank=rank,
        matched=meeting.duration.shape[1],
        contested=int(contested.sum()),
        last=int(last.sum()),
        wait_ms=waited / steps / 1e6,
        exposed_wait_ms=waited * (exposed / summed if summed else 0.0) / steps / 1e6,
        caused_ms=caused / steps / 1e6,
        extra_ms=extra,
    )


def _summed(rank: int, parts: list[Arrival]) -> Arrival:
    """One rank's arrivals in all its groups."""
    extra: dict[str, float] = {}
    for part in parts:
        for name, milliseconds in part.extra_ms.items():
            extra[name] = extra.get(name, 0.0) + milliseconds
    return Arrival(
        rank=rank,
        matched=sum(part.matched for part in parts),
        contested=sum(part.contested for part in parts),
        last=sum(part.last for part in parts),
        wait_ms=sum(part.wait_ms for part in parts),
        exposed_wait_ms=sum(part.exposed_wait_ms for part in parts),
        caused_ms=sum(part.caused_ms for part in parts),
        extra_ms=extra,
    )


def links(ranks: Sequence[Rank], met: Sequence[Meeting]) -> Iterator[Link]:
    """One for each group and operation."""
    steps = min((rank.steps or 1 for rank in ranks), default=1)
    for meeting in met:
        for name in dict.fromkeys(meeting.names):
            mine = np.array([other == name for other in meeting.names], dtype=bool)
            sizes = [size for size, chosen in zip(meeting.bytes, mine.tolist(), strict=True) if chosen]
            known = [size for size in sizes if size is not None]
            transfer = meeting.transfer[mine]
            large = np.array([size is not None and size >= LARGE_BYTES for size in sizes], dtype=bool)
            whole = len(known) == len(sizes)
            yield Link(
                group=meeting.group,
                ranks=meeting.members,
                name=name,
                count=len(sizes),
                bytes=sum(known) if whole else None,
                transfer_ms=meeting.transfer_ns(mine) / steps / 1e6,
                bus_bandwidth_gb_s=_bus_bandwidth(name, len(meeting.members), sizes, transfer, large)
                if whole
                else None,
                large_count=int(large.sum()),
            )


def _bus_bandwidth(name: str, size: int, sizes: list[int | None], transfer: Ints, large: Mask) -> float | None:
    chosen = large if large.any() else np.ones(len(sizes), dtype=bool)
    moved, took = np.array(sizes, dtype=np.float64)[chosen].sum(), transfer[chosen].sum()
    if not took or size < 2:
        return None
    factor = FACTORS[name] * (size - 1) / size if name in FACTORS else 1.0
    return float(moved / took * factor)
