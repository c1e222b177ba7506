"""The events of a trace as typed records of the few fields that are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import reduce
from operator import or_
from typing import Any

import msgspec

OPERATOR, RUNTIME, ANNOTATION, PYTHON, KERNEL, COPY, MEMSET = range(7)
"""Kinds of events. The first four happen on a thread of the host, the others on a stream of the device."""

KINDS = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "runtime": RUNTIME,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
}
"""By category, lower case: torch 1.8 wrote `Kernel`, `Operator`, `Runtime`, `Memcpy`, `Memset`.

`gpu_user_annotation` is left out: it repeats the annotations of the host on the device's streams.
"""


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="X"):
    """An event with a duration. Times are in microseconds."""

    ts: float
    dur: float = 0.0
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    args: msgspec.Raw = msgspec.Raw()
    # WHY: as text, since half the events are operators whose arguments nobody needs: a quarter of the time saved.


class CallArgs(msgspec.Struct, frozen=True, gc=False):
    """Arguments of a runtime or driver call."""

    correlation: int = -1


class DeviceArgs(msgspec.Struct, frozen=True, gc=False):
    """Arguments of a kernel, copy or memset. -1 and empty: not there."""

    correlation: int = -1
    bytes: int = -1
    grid: msgspec.Raw = msgspec.Raw()
    collective: str = msgspec.field(default="", name="Collective name")
    in_elements: int = msgspec.field(default=0, name="In msg nelems")
    out_elements: int = msgspec.field(default=0, name="Out msg nelems")
    element_type: str = msgspec.field(default="", name="dtype")
    group_size: int = msgspec.field(default=0, name="Group size")
    group: str = msgspec.field(default="", name="Process Group Name")
    group_ranks: str = msgspec.field(default="", name="Process Group Ranks")


class CounterArgs(msgspec.Struct, frozen=True, gc=False):
    """Arguments of a memory counter."""

    allocated: int = msgspec.field(default=-1, name="Total Allocated")
    device_type: int = msgspec.field(default=-1, name="Device Type")


class Instant(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="i"):
    """An event without duration; the memory counters are such."""

    name: str = ""
    args: CounterArgs = CounterArgs()


# WHY: arrows, names of threads and the like are three events in ten; a record without fields lets them be skipped.
_SKIPPED = tuple(
    msgspec.defstruct(f"Skipped{index}", [], tag_field="ph", tag=phase, frozen=True, gc=False)
    for index, phase in enumerate("BECIMNODPRSTFVbnestfpcv(),")
)
_AnyEvent: Any = reduce(or_, (Event, Instant, *_SKIPPED))
EVENTS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[_AnyEvent])
CALL_ARGS = msgspec.json.Decoder(list[CallArgs])
DEVICE_ARGS = msgspec.json.Decoder(list[DeviceArgs])


class Numbers(dict[Hashable, int]):
    """Gives each new key the next number."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


def records(text: bytes) -> tuple[list[Any], int, bytes | None]:
    """The whole events of a block, how many bytes were none, and what follows the end of the list where it came."""
    try:
        return EVENTS.decode(b"[" + text + b"]"), 0, None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return salvage(text, EVENTS)


_NOT_JSON = re.compile(rb"(?<=[\s:,\[])-?(?:nan|inf|NaN|Infinity)(?=[\s,}\]])")


def salvage(text: bytes, decoder: msgspec.json.Decoder[list[Any]]) -> tuple[list[Any], int, bytes | None]:
    """Event by event: the whole ones, how many bytes were none, and what follows the list's end where it came."""
    # WHY: Kineto writes a bandwidth over no time as `inf`, which is no JSON.
    text = _NOT_JSON.sub(b"0", text)
    try:
        return decoder.decode(b"[" + text + b"]"), 0, None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    readable, scanner = text.decode("utf-8", errors="replace"), json.JSONDecoder(strict=False)
    events: list[Any] = []
    at, lost = 0, 0
    while (begin := _NEXT.match(readable, at)) is not None:
        at = begin.end()
        if begin.group(1) == "]":
            return events, lost, readable[at:].encode()
        try:
            value, end = scanner.raw_decode(readable, at - 1)
            events.extend(decoder.decode(b"[" + json.dumps(value).encode() + b"]"))
        except (ValueError, RecursionError):
            following = _BOUNDARY.search(readable, at)
            end = following.start() if following else len(readable)
            lost += end - at + 1
        at = end
    rest = readable[at:].strip().strip(",")
    return events, lost + len(rest), None


_NEXT = re.compile(r"[\s,]*([{\]])")
_BOUNDARY = re.compile(r'(?<=}),\s*{\s*"')
