"""Read a trace of torch.profiler (Kineto's JSON, gzipped or not, old or new) into columns, in bounded memory."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpudoctor.profiling.blocks import Block, Source, TraceError, header_of
from gpudoctor.profiling.columns import Columns, Decoded, Message, decode, merge

PARALLEL_BYTES = 48 << 20
"""A plain file larger than this is worth the 0.3 s that worker processes take to start; a gzipped one at a tenth."""


@dataclass
class Trace:
    """One trace in memory: about 45 bytes an event."""

    path: Path
    header: dict[str, Any]
    origin_us: int
    """Added to `start` (in nanoseconds) it gives the file's own times."""
    columns: Columns
    names: list[str]
    lanes: list[tuple[int | str, int | str]]
    details: list[str | Message]
    events: int
    memory_peak_bytes: int | None
    damage: str | None
    """What could not be read; None where the file was whole."""

    @property
    def clock_base_ns(self) -> int | None:
        """Nanoseconds since 1970 of `start` 0; None where the trace's clock has no known zero."""
        base = self.header.get("baseTimeNanoseconds")
        if isinstance(base, int):
            return base + self.origin_us * 1000
        # Before torch 2.2 times were microseconds since 1970.
        return self.origin_us * 1000 if self.origin_us > 10**15 else None


def read(path: Path, *, workers: int = 1) -> Trace:
    """All events of the file that a timeline needs. `workers` processes decode a large one together.

    Raises TraceError where nothing of the file can be used, OSError where it cannot be opened. Of a file that is cut
    off or damaged the whole part is read, and `damage` says what is missing.
    """
    source = Source(path)
    # WHY: the collector would walk the same records again and again; it costs up to six times the decoding.
    with _without_collector():
        if workers > 1 and path.stat().st_size > PARALLEL_BYTES // (10 if source.compressed else 1):
            table = merge(_together(source, workers))
        else:
            table = merge(_alone(source))
    if not table.events:
        raise TraceError(source.damage or "no event in it")
    if not len(table.columns.kind):
        raise TraceError("no event in it that a timeline is made of")
    return Trace(
        path=path,
        header=_header(source, table),
        origin_us=int(source.first_ts),
        columns=table.columns,
        names=table.names,
        lanes=table.lanes,
        details=table.details,
        events=table.events,
        memory_peak_bytes=table.memory_peak_bytes,
        damage=_damage(source, table),
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _alone(source: Source) -> Iterator[Decoded]:
    blocks = source.blocks()
    for block in blocks:
        part = decode(block.read(), int(source.first_ts))
        if part.after is not None:
            # The cut fell into what stands behind the events, which may hold lists of objects too.
            part.after = b",".join((part.after, *(later.read() for later in blocks), source.tail))
            yield part
            return
        yield part
    yield decode(source.tail, int(source.first_ts))


def _together(source: Source, workers: int) -> Iterator[Decoded]:
    """As `_alone`, in the file's order, with few blocks under way so that memory stays bounded."""
    # WHY: a fork of a process with threads (a progress bar has one) can hang; a fresh interpreter cannot.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        under_way: deque[Future[Decoded]] = deque()
        for block in source.blocks():
            under_way.append(pool.submit(_decoded, block, int(source.first_ts)))
            if len(under_way) > 2 * workers:
                yield (part := under_way.popleft().result())
                if part.after is not None:
                    return
        for future in under_way:
            yield (part := future.result())
            if part.after is not None:
                return
    yield decode(source.tail, int(source.first_ts))


def _decoded(block: Block, origin_us: int) -> Decoded:
    """In a worker process."""
    with _without_collector():
        return decode(block.read(), origin_us)


def _header(source: Source, table: Decoded) -> dict[str, Any]:
    """Fields before and behind the events."""
    behind = header_of(b'{"": 0' + table.after) if table.after else {}
    return {**behind, **source.header}


def _damage(source: Source, table: Decoded) -> str | None:
    """What is missing, in a clause. A list of events that never ends was cut off."""
    if source.damage is not None:
        return f"{source.damage}; {table.events:,} events before that were read"
    if table.after is None:
        return f"the file is cut off after {table.events:,} events"
    if table.lost_bytes:
        return f"{table.lost_bytes:,} bytes in the middle of the file are no events and were skipped"
    return None
