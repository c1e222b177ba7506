"""A trace file as a header and blocks of whole events, read piece by piece and gunzipped on the way."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import IO, Any

BLOCK_BYTES = 4 << 20
"""Large enough that a call's cost does not show, small enough that a block's records fit the processor's cache."""
HEAD_BYTES = 64 << 20
"""Where no event has begun by then, the file is no trace."""
KINETO_BOUNDARY = b'},\n  {\n    "'


NO_TRACE = "no list of traceEvents in it: not a trace of torch.profiler"


class TraceError(ValueError):
    """A file is no trace that can be read; the text says why in a clause."""


@dataclass(frozen=True)
class Block:
    """Whole events, separated by commas. Of a plain file only where they stand: whoever decodes them reads them."""

    path: Path
    start: int
    end: int
    """Where the comma behind it stands."""
    text: bytes | None = None
    """Of a gzipped file the events themselves."""

    def read(self) -> bytes:
        if self.text is not None:
            return self.text
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.start)
            return file.read(self.end - self.start)


@dataclass
class Source:
    """An opened trace. All but `path` is known when the first block comes; `tail` and `damage` after the last."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    boundary: bytes = KINETO_BOUNDARY
    """What stands between two events, from the brace that closes one to the first key of the next: it differs with
    the writer, and whoever cuts the text just behind that brace has whole events on either side."""
    first_ts: float = 0.0
    """Time of the first event that has a duration, in the file's microseconds."""
    tail: bytes = b""
    """What follows the last boundary: the last event, and whatever stands behind the events."""
    damage: str | None = None
    """What went wrong while reading the file's bytes."""

    @cached_property
    def compressed(self) -> bool:
        """By its first bytes, since names lie."""
        with self.path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"

    def blocks(self) -> Iterator[Block]:
        """A few MiB at a time. The last event is not among them: see `tail`.

        Raises TraceError where the file holds no list of events, OSError where it cannot be opened.
        """
        yield from self._gunzipped() if self.compressed else self._plain()

    def _plain(self) -> Iterator[Block]:
        size = self.path.stat().st_size
        with self.path.open("rb", buffering=0) as file:
            at = self._begin(self._head(file))
            while size - at > BLOCK_BYTES and (end := self._cut(file, at, size)) is not None:
                yield Block(self.path, at, end)
                at = end + 1
            file.seek(at)
            rest = file.readall()
        if (cut := rest.rfind(self.boundary)) >= 0:
            yield Block(self.path, at, at + cut + 1)
        self.tail = rest[cut + 2 if cut >= 0 else 0 :]

    def _cut(self, file: FileIO, at: int, size: int) -> int | None:
        """Where the comma of the last boundary of the next block stands, or of the first behind it; None at the end."""
        limit = at + BLOCK_BYTES
        for window in (1 << 16, BLOCK_BYTES):
            begin = max(at, limit - window)
            file.seek(begin)
            if (found := file.read(limit - begin).rfind(self.boundary)) >= 0:
                return begin + found + 1
        while limit < size:  # one event that is larger than a block
            file.seek(limit - len(self.boundary))
            if (found := file.read(BLOCK_BYTES).find(self.boundary)) >= 0:
                return limit - len(self.boundary) + found + 1
            limit += BLOCK_BYTES - len(self.boundary)
        return None

    def _gunzipped(self) -> Iterator[Block]:
        from isal import igzip  # twice as fast as zlib, and gunzipping a trace takes longer than analysing it

        with igzip.open(self.path, "rb") as stream:  # type: ignore[no-untyped-call]
            rest = self._head(stream)
            start = self._begin(rest)
            rest = rest[start:]
            while True:
                more = self._more(stream, BLOCK_BYTES)
                rest += more
                if (cut := rest.rfind(self.boundary)) >= 0:
                    yield Block(self.path, start, start + cut + 1, rest[: cut + 1])
                    start, rest = start + cut + 2, rest[cut + 2 :]
                if not more:
                    self.tail = rest
                    return

    def _head(self, stream: IO[bytes] | FileIO) -> bytes:
        """The file up to somewhere behind the start of the first event."""
        head = self._more(stream, 1 << 20)
        if not head:
            raise TraceError(self.damage or "an empty file")
        while _EVENTS.search(head) is None and not head.lstrip().startswith(b"[") and len(head) < HEAD_BYTES:
            if not (more := self._more(stream, BLOCK_BYTES)):
                break
            head += more
        return head

    def _begin(self, head: bytes) -> int:
        """Read the header, learn the boundary. Returns where the first event begins."""
        if head.lstrip().startswith(b"["):
            at = head.index(b"[") + 1
        elif (key := _EVENTS.search(head)) is not None:
            at = key.end()
            self.header = header_of(head[: key.start()] + b'"": 0}')
        else:
            raise TraceError(NO_TRACE)
        text = head[at : at + (1 << 20)]
        if (following := re.compile(rb'},\s*{\s*"').search(text, max(0, _end_of_first(text) - 1))) is not None:
            self.boundary = following.group()
        if (stamp := re.search(rb'"ph"\s*:\s*"X"[^{}]*?"ts"\s*:\s*([\d.]+)', text)) is not None:
            self.first_ts = float(stamp.group(1))
        return at

    def _more(self, stream: IO[bytes] | FileIO, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end, or where the compressed data is broken, which `damage` then says."""
        pieces: list[bytes] = []
        try:
            while size > 0 and (piece := stream.read(min(size, 1 << 18))):
                pieces.append(piece)
                size -= len(piece)
        except EOFError:
            self.damage = "the compressed file is cut off"
        except (OSError, ValueError, zlib.error) as error:
            self.damage = f"the compressed data is damaged: {error}"
        return b"".join(pieces)


_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


def _end_of_first(text: bytes) -> int:
    """Where the first event ends; 0 where it is not whole."""
    try:
        decoded = text.decode("utf-8", errors="replace")
        end = json.JSONDecoder().raw_decode(decoded, len(decoded) - len(decoded.lstrip()))[1]
    except ValueError:
        return 0
    return len(decoded[:end].encode())


def header_of(text: bytes) -> dict[str, Any]:
    """The fields around the events, or {} where they cannot be read: a trace is worth reading without them."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return {key: item for key, item in value.items() if key} if isinstance(value, dict) else {}
