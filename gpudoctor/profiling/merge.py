"""One trace of all ranks for Perfetto, made of each rank's own: streamed, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from gpudoctor.facts.run import Rank
from gpudoctor.profiling.blocks import Source, TraceError
from gpudoctor.profiling.events import Numbers, salvage

MARGIN_NS = 100 * 10**9
"""Where the first rank's events begin, since other ranks' may begin before them and no time may be negative."""
LEVEL = 1
"""Of compression: ten times faster than the highest, which torch uses, for files a third larger."""
PROCESSES = 10_000
"""Numbers of processes kept for each rank, more than a trace has."""
ARROW_BITS = 32
"""Ids of arrows are correlation ids, which are no larger; the rank stands above them."""
MARKS = ("Spans", "Traces", "")
"""Processes that Kineto makes up for marks of its own."""


class Event(msgspec.Struct, gc=False, omit_defaults=True):
    """Every field that the format has; what needs no change stays the text it is.

    Source: Trace Event Format, Google, 2016.
    """

    ph: str = ""
    name: msgspec.Raw = msgspec.Raw()
    cat: msgspec.Raw = msgspec.Raw()
    pid: int | str = ""
    tid: msgspec.Raw = msgspec.Raw()
    ts: float | None = None
    """Microseconds."""
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()
    id: int | str | None = None
    bind_id: int | str | None = None
    bp: msgspec.Raw = msgspec.Raw()
    s: msgspec.Raw = msgspec.Raw()
    cname: msgspec.Raw = msgspec.Raw()
    scope: msgspec.Raw = msgspec.Raw()
    id2: msgspec.Raw = msgspec.Raw()
    tts: msgspec.Raw = msgspec.Raw()
    tdur: msgspec.Raw = msgspec.Raw()
    flow_in: msgspec.Raw = msgspec.Raw()
    flow_out: msgspec.Raw = msgspec.Raw()
    sf: msgspec.Raw = msgspec.Raw()
    stack: msgspec.Raw = msgspec.Raw()


_EVENTS = msgspec.json.Decoder(list[Event])


def merge(traces: Sequence[tuple[Rank, Path]], target: Path) -> dict[str, str]:
    """Write `target`, gzipped, from each rank's trace. Returns what is missing in it: name of a trace → reason.

    Processes are numbered anew and named `rank 3 · GPU 1`, arrows stay in their rank, and all clocks are laid on the
    first rank's: by the hosts' clocks, between hosts by the ends of the collectives they share. Raises OSError where
    `target` cannot be written and TraceError where no trace could be read; then nothing is left of it.
    """
    from isal import igzip

    unread: dict[str, str] = {}
    part = target.with_name(f".{target.name}.part")
    try:
        with igzip.open(part, "wb", compresslevel=LEVEL) as out:  # type: ignore[no-untyped-call]
            written = _write(traces, out, unread)
        if not written:
            raise TraceError("; ".join(f"{name}: {reason}" for name, reason in unread.items()) or "no trace to merge")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return unread


def _write(traces: Sequence[tuple[Rank, Path]], out: IO[bytes], unread: dict[str, str]) -> bool:
    """Whether there was any event."""
    axis = _Axis(traces[0][0] if traces else Rank(rank=0))
    between = b""
    out.write(b'{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [\n')
    for number, (rank, path) in enumerate(traces):
        for text in _rewritten(rank, number, path, axis, unread):
            out.write(between + text)
            between = b",\n"
    out.write(b"\n]}\n")
    return bool(between)


@dataclass(frozen=True)
class _Axis:
    """The common one: nanoseconds of the first rank's clock."""

    first: Rank

    def shift_ns(self, rank: Rank, origin_ns: int) -> int:
        """Add it to a time of the rank's trace."""
        zero = self.first.clock_base_ns or 0
        base = zero if rank.clock_base_ns is None else rank.clock_base_ns
        # WHY: clocks of one host agree better than the ends of a gloo collective do.
        one_host = rank.host is not None and rank.host == self.first.host
        return base - origin_ns - zero - (0 if one_host else rank.clock_ahead_ns or 0) + MARGIN_NS


def _rewritten(rank: Rank, number: int, path: Path, axis: _Axis, unread: dict[str, str]) -> Iterator[bytes]:
    """The events of one trace, a few MiB at a time, separated by commas."""
    source = Source(path)
    process = _Processes(rank.rank, number)
    lost, whole = 0, False
    try:
        for text in _texts(source):
            events, missing, after = _decoded(text)
            lost += missing
            shift_ns = axis.shift_ns(rank, int(source.first_ts) * 1000)
            if kept := [event for event in events if process.renamed(event, shift_ns / 1000)]:
                yield msgspec.json.encode(kept)[1:-1]
            if after is not None:
                whole = True
                break
    except (TraceError, OSError) as error:
        unread[path.name] = str(error)
    if names := process.names():
        yield msgspec.json.encode(names)[1:-1]
    if source.damage or not whole:
        unread.setdefault(path.name, source.damage or "the file is cut off")
    elif lost:
        unread[path.name] = f"{lost:,} bytes of it are no events"


def _texts(source: Source) -> Iterator[bytes]:
    with closing(source.blocks()) as blocks:  # type: ignore[type-var]
        for block in blocks:
            yield block.read()
    yield source.tail


def _decoded(text: bytes) -> tuple[list[Event], int, bytes | None]:
    """Events, bytes that are none, and what follows the end of the events."""
    try:
        text.decode()  # Most is copied unread, and what is copied must be UTF-8.
        return _EVENTS.decode(b"[" + text + b"]"), 0, None
    except (msgspec.DecodeError, UnicodeError):
        return salvage(text, _EVENTS)


@dataclass
class _Processes:
    """The processes of one trace, under numbers and names that no other rank has."""

    rank: int
    number: int
    """Place of the rank among the traces."""
    seen: Numbers = field(default_factory=Numbers)
    """As the trace writes them, of those that have events."""
    labels: dict[int | str, str] = field(default_factory=dict)
    threads: list[Event] = field(default_factory=list)

    def renamed(self, event: Event, shift_us: float) -> bool:
        """Change the event in place. False for one that is not to be written, or not yet."""
        if event.ph == "M":
            self._name(event)
            return False
        if event.pid in MARKS:
            return False
        event.pid = self._pid(event.pid)
        if event.ts is not None:
            event.ts = max(0.0, round(event.ts + shift_us, 3))
        if event.id is not None:
            event.id = self._arrow(event.id)
        if event.bind_id is not None:
            event.bind_id = self._arrow(event.bind_id)
        return True

    def names(self) -> list[dict[str, Any] | Event]:
        """Of processes that have events, and of their threads: the driver's other GPUs would be empty rows."""
        told: list[dict[str, Any] | Event] = []
        for process in tuple(self.seen):
            assert isinstance(process, int | str)
            label = self.labels.get(process) or f"process {process}"
            name = f"rank {self.rank} · {'host' if label == 'CPU' else label}"
            pid = self._pid(process)
            order = self.number * PROCESSES if label == "CPU" else pid - PROCESSES + 1
            told.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
            told.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": order}})
        for event in self.threads:
            if event.pid in self.seen:
                event.pid = self._pid(event.pid)
                told.append(event)
        return told

    def _name(self, event: Event) -> None:
        name = bytes(event.name)
        if name.startswith(b'"thread_'):
            # Copied, since the text of an event holds on to the whole block it was read from.
            kept = Event(ph="M", pid=event.pid, tid=event.tid.copy(), name=event.name.copy(), args=event.args.copy())
            self.threads.append(kept)
        elif name == b'"process_labels"':
            args = msgspec.json.decode(event.args or b"{}")
            self.labels[event.pid] = str(args.get("labels", "")) if isinstance(args, dict) else ""

    def _pid(self, process: int | str) -> int:
        return (self.number + 1) * PROCESSES + self.seen[process]

    def _arrow(self, number: int | str) -> int | str:
        if isinstance(number, int) and 0 <= number < 1 << ARROW_BITS:
            return self.number << ARROW_BITS | number
        return f"{self.number}.{number}"
