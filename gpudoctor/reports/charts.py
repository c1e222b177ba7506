"""The geometry of the charts in the HTML report: numbers from 0 to 100, so that the page sets the size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpudoctor.facts.run import Gap, Rank
from gpudoctor.facts.watch import Watch, WatchedGpu
from gpudoctor.reports.figures import milliseconds
from gpudoctor.reports.steps import NAMES

NAMED = 0.02
"""Gaps shorter than this part of the step are not worth a number."""
NUMBERED = 4
"""Gaps of one rank that get one."""
TICKS = (1, 2, 5)
"""Distances between marks of an axis, times a power of ten."""


@dataclass(frozen=True)
class Block:
    """A piece of a timeline long enough to be pointed at."""

    kind: str
    left: float
    width: float
    title: str


@dataclass(frozen=True)
class Numbered:
    """A gap that is named below the timeline."""

    number: int
    rank: int
    left: float
    """Its middle."""
    gap: Gap


@dataclass(frozen=True)
class Lane:
    """One rank's step."""

    rank: int
    paths: dict[str, str]
    """All pieces of one kind as one SVG path, in a box 100 wide and 1 high."""
    blocks: tuple[Block, ...]
    gaps: tuple[Numbered, ...]


@dataclass(frozen=True)
class Timeline:
    """One step of several ranks on one axis."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    """Place and text."""


@dataclass(frozen=True)
class Line:
    """One series over time, as SVG points in a box 100 wide and 100 high; it breaks where there was no answer."""

    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Board:
    """What NVML saw of one GPU."""

    gpu: WatchedGpu
    memory: Line
    """Of all there is."""
    utilization: Line
    utilization_mean: float | None
    power_peak_w: float | None = field(default=None)


def timeline(ranks: Sequence[Rank]) -> Timeline | None:
    """None where no rank has one."""
    drawn = [rank for rank in ranks if rank.timeline]
    if not drawn:
        return None
    starts = _starts(drawn)
    begin = min(starts.values())
    length = max(starts[rank.rank] + _length(rank) for rank in drawn) - begin
    lanes: list[Lane] = []
    number = 1
    for rank in drawn:
        lane = _lane(rank, starts[rank.rank] - begin, length, number)
        number += len(lane.gaps)
        lanes.append(lane)
    return Timeline(tuple(lanes), tuple(ticks(length / 1e6, "ms")))


def boards(watch: Watch) -> Iterator[Board]:
    """Those of which a series has an answer."""
    for gpu in watch.gpus:
        total = gpu.memory_total_bytes or gpu.peak_bytes
        memory = _line(
            watch.at_s, [used / total if used is not None and total else None for used in gpu.memory_used_bytes]
        )
        busy = [ratio for ratio in gpu.utilization_ratio if ratio is not None]
        if memory.pieces or busy:
            yield Board(
                gpu=gpu,
                memory=memory,
                utilization=_line(watch.at_s, gpu.utilization_ratio),
                utilization_mean=sum(busy) / len(busy) if busy else None,
                power_peak_w=max((watt for watt in gpu.power_w if watt is not None), default=None),
            )


def ticks(length: float, unit: str) -> Iterator[tuple[float, str]]:
    """About five round marks on an axis from 0 to `length`: place (0 to 100) and text."""
    if length <= 0:
        return
    power = 10.0**-6
    while not any(length / (base * power) <= 6 for base in TICKS):
        power *= 10
    distance = next(base * power for base in TICKS if length / (base * power) <= 6)
    at = 0
    while at * distance <= length * 0.97:
        yield at * distance / length * 100, f"{at * distance:g}{f' {unit}' if at == 0 else ''}"
        at += 1


def _starts(ranks: Sequence[Rank]) -> dict[int, float]:
    """Where each rank's step begins on a common axis, in nanoseconds; each at 0 where the clocks are not known.

    Steps that share no moment are drawn one under the other from 0 too.
    """
    if all(rank.clock_base_ns is not None for rank in ranks):
        least = min(rank.clock_base_ns or 0 for rank in ranks)
        common = {
            rank.rank: float(rank.timeline[0].start_ns + (rank.clock_base_ns or 0) - least - (rank.clock_ahead_ns or 0))
            for rank in ranks
        }
        if max(common.values()) - min(common.values()) < max(map(_length, ranks)):
            return common
    return dict.fromkeys((rank.rank for rank in ranks), 0.0)


def _length(rank: Rank) -> int:
    last = rank.timeline[-1]
    return last.start_ns + last.duration_ns - rank.timeline[0].start_ns


def _lane(rank: Rank, offset: float, length: float, number: int) -> Lane:
    zero = rank.timeline[0].start_ns - offset
    paths: dict[str, list[str]] = {}
    blocks = []
    for segment in rank.timeline:
        left, width = (segment.start_ns - zero) / length * 100, segment.duration_ns / length * 100
        paths.setdefault(segment.kind, []).append(f"M{left:.3f} 0h{width:.3f}v1h-{width:.3f}z")
        if width >= 1:
            title = f"{segment.kind} {milliseconds(segment.duration_ns / 1e6)}"
            blocks.append(Block(segment.kind, left, width, title))
    end = rank.timeline[0].start_ns + _length(rank)
    inside = [
        gap
        for gap in sorted(rank.gaps, key=lambda gap: -gap.duration_ns)
        if gap.start_ns >= rank.timeline[0].start_ns and gap.start_ns + gap.duration_ns <= end
    ]
    named = [gap for gap in inside if gap.duration_ns >= NAMED * _length(rank)][:NUMBERED]
    return Lane(
        rank=rank.rank,
        paths={kind: "".join(paths[kind]) for kind in NAMES if kind in paths},
        blocks=tuple(blocks),
        gaps=tuple(
            Numbered(at, rank.rank, (gap.start_ns + gap.duration_ns / 2 - zero) / length * 100, gap)
            for at, gap in enumerate(sorted(named, key=lambda gap: gap.start_ns), number)
        ),
    )


def _line(at_s: Sequence[float], values: Sequence[float | None]) -> Line:
    if len(at_s) < 2 or at_s[-1] <= at_s[0]:
        return Line(())
    pieces: list[list[str]] = [[]]
    for moment, value in zip(at_s, values, strict=False):
        if value is None:
            pieces.append([])
        else:
            x = (moment - at_s[0]) / (at_s[-1] - at_s[0]) * 100
            pieces[-1].append(f"{x:.2f},{100 - min(max(value, 0.0), 1.0) * 100:.2f}")
    return Line(tuple(" ".join(piece) for piece in pieces if len(piece) > 1))
