"""Events as columns of numbers: what is kept of a trace."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudoctor.profiling.events import (
    ANNOTATION,
    CALL_ARGS,
    DEVICE_ARGS,
    KERNEL,
    KINDS,
    OPERATOR,
    PYTHON,
    RUNTIME,
    DeviceArgs,
    Event,
    Instant,
    Numbers,
    records,
)
from gpudoctor.profiling.intervals import Ints, Mask, outermost

CALLS = re.compile(r"Launch|Memcpy|Memset|Synchronize|Malloc|Free|Host(?:Alloc|Register)|MemAlloc", re.IGNORECASE)
"""Runtime and driver calls that are kept: the others (queries, attributes, events) are short and launch nothing."""
BLOCKING = re.compile(r"item|_local_scalar|nonzero|copy|aten::to$|unique|masked|equal|bincount|repeat_interleave")
"""Operators that may wait for the device; they are kept wherever they stand, to name a wait by the nearest of them."""
SCOPES = re.compile(
    r"ProfilerStep|enumerate\(DataLoader\)#|Optimizer\.\w+#|DistributedDataParallel\.|^(?:gloo|nccl|mpi):|^## "
)
"""Names of scopes, which older torch wrote as operators: an operator around a whole step would hide all of it."""
PYTHON_MIN_NS = 1_000_000
"""Python frames shorter than this explain no stall, and a trace with stacks has millions of them."""


@dataclass(frozen=True)
class Message:
    """What a collective carries, as far as the trace says."""

    name: str
    bytes: int | None
    group: str
    size: int | None
    ranks: str


@dataclass
class Columns:
    """Events as columns of one length each. Numbers in `name`, `lane` and `detail` point into the lists of the same."""

    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    """Process and thread on the host; device and stream (as the trace numbers them) on the device."""
    start: NDArray[np.int64]
    """Nanoseconds from the trace's origin."""
    duration: NDArray[np.int64]
    correlation: NDArray[np.int64]
    """What ties a call to the work it launched; -1 for none."""
    detail: NDArray[np.int32]
    """Grid of a kernel, Message of a collective; -1 for none."""
    bytes: NDArray[np.int64]
    """Of a copy; -1 where unknown."""


@dataclass
class Decoded:
    """One block's events."""

    columns: Columns
    names: list[str]
    lanes: list[tuple[int | str, int | str]]
    """Process and thread on the host, device and stream on the device."""
    details: list[str | Message]
    events: int
    """All of them, whether kept or not."""
    memory_peak_bytes: int | None
    lost_bytes: int = 0
    """Text that is no event."""
    after: bytes | None = None
    """What follows the end of the list of events, where that came."""


def decode(text: bytes, origin_us: float) -> Decoded:
    """The events of one block (or of the tail). Text that is no event is skipped and counted."""
    events, lost, after = records(text)
    decoded = _columns(events, origin_us)
    decoded.lost_bytes, decoded.after = lost, after
    return decoded


def _columns(events: list[Any], origin_us: float) -> Decoded:
    """Keep the events that matter, as numbers."""
    spans: list[Event] = [event for event in events if event.__class__ is Event]
    names, lanes, details, kinds = Numbers(), Numbers(), Numbers(), _Kinds()
    kind = np.array([kinds[event.cat] for event in spans], dtype=np.int8)
    name = np.array([names[event.name] for event in spans], dtype=np.int32)
    lane = np.array([lanes[event.pid, event.tid] for event in spans], dtype=np.int32)
    start = _nanoseconds([event.ts for event in spans], origin_us)
    duration = _nanoseconds([event.dur for event in spans], 0.0)
    scopes = np.array([_is_scope(text) for text in names], dtype=bool)
    kind[(kind == OPERATOR) & scopes[name]] = ANNOTATION
    kept = _needed(kind, name, lane, start, duration, names)
    spans = list(compress(spans, kept.tolist()))
    kind, name, lane, start, duration = kind[kept], name[kept], lane[kept], start[kept], duration[kept]
    correlation = np.full(len(spans), -1, dtype=np.int64)
    detail = np.full(len(spans), -1, dtype=np.int32)
    size = np.full(len(spans), -1, dtype=np.int64)
    calls_at, works_at = np.flatnonzero(kind == RUNTIME), np.flatnonzero(kind >= KERNEL)
    correlation[calls_at] = [args.correlation for args in _arguments(CALL_ARGS, spans, calls_at)]
    works = _arguments(DEVICE_ARGS, spans, works_at)
    correlation[works_at] = [args.correlation for args in works]
    size[works_at] = [args.bytes for args in works]
    detail[works_at] = [
        details[_message(args)] if args.collective or args.group else details[bytes(args.grid)] if args.grid else -1
        for args in works
    ]
    memory = [
        event.args.allocated
        for event in events
        if event.__class__ is Instant and event.args.device_type == 1 and event.args.allocated >= 0
    ]
    return Decoded(
        columns=Columns(
            kind=kind,
            name=name,
            lane=lane,
            start=start,
            duration=duration,
            correlation=correlation,
            detail=detail,
            bytes=size,
        ),
        names=list(names),  # type: ignore[arg-type]
        lanes=list(lanes),  # type: ignore[arg-type]
        details=[_grid(key) if isinstance(key, bytes) else key for key in details],  # type: ignore[misc]
        events=len(events),
        memory_peak_bytes=max(memory, default=None),
    )


def _nanoseconds(microseconds: list[float], origin_us: float) -> Ints:
    return np.rint((np.array(microseconds, dtype=np.float64) - origin_us) * 1000).astype(np.int64)


def _needed(
    kind: NDArray[np.int8],
    name: NDArray[np.int32],
    lane: NDArray[np.int32],
    start: Ints,
    duration: Ints,
    names: Numbers,
) -> Mask:
    """Which events a timeline is made of.

    Three operators of four lie inside another one and tell nothing that this one does not, except where a call blocks.
    """
    needed = kind >= 0
    calls = kind == RUNTIME
    needed[calls] = np.array([_launches_or_waits(text) for text in names], dtype=bool)[name[calls]]
    needed &= (kind != PYTHON) | (duration >= PYTHON_MIN_NS)
    operators = np.flatnonzero(kind == OPERATOR)
    blocking = np.array([_may_block(text) for text in names], dtype=bool)
    needed[operators] = blocking[name[operators]] | outermost(lane[operators], start[operators], duration[operators])
    return needed


@lru_cache(maxsize=1 << 16)
def _launches_or_waits(name: Hashable) -> bool:
    return CALLS.search(str(name)) is not None


@lru_cache(maxsize=1 << 16)
def _is_scope(name: Hashable) -> bool:
    return SCOPES.search(str(name)) is not None


@lru_cache(maxsize=1 << 16)
def _may_block(name: Hashable) -> bool:
    return BLOCKING.search(str(name)) is not None


def _arguments(decoder: msgspec.json.Decoder[list[Any]], spans: list[Event], at: NDArray[np.intp]) -> list[Any]:
    """Arguments of the events at these places, decoded in one go."""
    texts = [spans[index].args or b"{}" for index in at.tolist()]
    try:
        return decoder.decode(b"[" + b",".join(texts) + b"]")
    except msgspec.DecodeError:
        return [_argument(decoder, bytes(text)) for text in texts]


def _argument(decoder: msgspec.json.Decoder[list[Any]], text: bytes) -> Any:
    """Arguments of one event; those of an event without any where the text holds something else."""
    try:
        return decoder.decode(b"[" + text + b"]")[0]
    except msgspec.DecodeError:
        return decoder.decode(b"[{}]")[0]


class _Kinds(dict[str, int]):
    """Kind of a category, -1 for one that is not kept."""

    def __missing__(self, category: str) -> int:
        self[category] = kind = KINDS.get(category.lower(), -1)
        return kind


ELEMENT_BYTES = {"Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4}
ELEMENT_BYTES |= {"Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16}
"""By the name of c10::ScalarType; the 8-bit floats are told by `Float8`."""


def _message(args: DeviceArgs) -> Message:
    width = 1 if args.element_type.startswith("Float8") else ELEMENT_BYTES.get(args.element_type)
    elements = max(args.in_elements, args.out_elements)
    return Message(
        name=args.collective,
        bytes=elements * width if width else None,
        group=args.group,
        size=args.group_size or None,
        ranks=args.group_ranks,
    )


def _grid(raw: bytes) -> str:
    """`[2, 66, 1]` as `2,66,1`."""
    return "".join(raw.decode().split()).strip("[]")


def merge(parts: Iterator[Decoded]) -> Decoded:
    """One table of all blocks, numbers made common."""
    names, lanes, details = Numbers(), Numbers(), Numbers()
    pieces: dict[str, list[NDArray[Any]]] = {column: [] for column in Columns.__annotations__}
    events = lost = 0
    peaks: list[int] = []
    after: bytes | None = None
    for part in parts:
        columns = part.columns
        columns.name = _renumbered(columns.name, part.names, names)
        columns.lane = _renumbered(columns.lane, part.lanes, lanes)
        columns.detail = _renumbered(columns.detail, part.details, details)
        for column, held in pieces.items():
            held.append(getattr(columns, column))
        events, lost = events + part.events, lost + part.lost_bytes
        after = part.after if part.after is not None else after
        if part.memory_peak_bytes is not None:
            peaks.append(part.memory_peak_bytes)
    # One column after the other, each freed in pieces before the next is joined: the peak is the table and one column.
    joined = {column: np.concatenate(pieces.pop(column)) for column in tuple(pieces)}
    # An operator whose outer one stands in another block was taken for an outermost one.
    kept = _needed(joined["kind"], joined["name"], joined["lane"], joined["start"], joined["duration"], names)
    if not kept.all():
        joined = {column: joined.pop(column)[kept] for column in tuple(joined)}
    return Decoded(
        columns=Columns(**joined),
        names=list(names),  # type: ignore[arg-type]
        lanes=list(lanes),  # type: ignore[arg-type]
        details=list(details),  # type: ignore[arg-type]
        events=events,
        memory_peak_bytes=max(peaks, default=None),
        lost_bytes=lost,
        after=after,
    )


def _renumbered(column: NDArray[np.int32], keys: list[Any], common: Numbers) -> NDArray[np.int32]:
    """Numbers of one block as those of the whole; -1 stays."""
    table = np.array([*(common[key] for key in keys), -1], dtype=np.int32)
    return table[column]
