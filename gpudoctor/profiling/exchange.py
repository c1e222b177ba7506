"""One rank's collectives, so that they can be laid beside those of other ranks."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from gpudoctor.facts.run import Collectives
from gpudoctor.profiling import kernels
from gpudoctor.profiling.columns import Message
from gpudoctor.profiling.events import ANNOTATION, KERNEL
from gpudoctor.profiling.intervals import Ints, Mask, holding, overlap, subtract
from gpudoctor.profiling.timeline import SHARES, Timeline, collectives, named, times
from gpudoctor.profiling.trace import Trace

MAX_COLLECTIVES = 10_000
DEFAULT_GROUP = "default"


@dataclass(frozen=True)
class _Group:
    """A process group as far as the trace tells it apart from others."""

    name: str
    backend: str | None
    size: int | None
    ranks: tuple[int, ...] | None


def collective_series(timeline: Timeline) -> tuple[Collectives, ...]:
    """One series for each process group, of the collectives that belong to the window's steps."""
    trace = timeline.trace
    on_device = collectives(trace)
    place = np.searchsorted(timeline.work, on_device)
    on_host = named(trace, kernels.HOST_COLLECTIVE, ANNOTATION)
    held = holding(trace.columns.start[on_host], timeline.host)
    numbers = np.array([-1 if step.number is None else step.number for step in timeline.steps] or [-1], dtype=np.int64)
    at = np.concatenate((on_device, on_host))
    step = np.concatenate((timeline.work_step[place], numbers[held]))
    wanted = np.concatenate((timeline.inside[place], held >= 0))
    order = np.argsort(trace.columns.start[at], kind="stable")
    at, step, wanted = at[order], step[order], wanted[order]
    groups = _groups(trace, at)
    found = []
    for group in dict.fromkeys(groups):
        mine = np.array([other == group for other in groups], dtype=bool)
        if (mine & wanted).any():
            found.append(_series(timeline, group, at[mine], step[mine], wanted[mine]))
    return tuple(found)


def _groups(trace: Trace, at: Ints) -> list[_Group]:
    """Group of each of these collectives.

    Kernels of older torch carry no group; each communicator has a stream of its own, in the order they were made.
    """
    columns = trace.columns
    unnamed = (columns.kind[at] == KERNEL) & (columns.detail[at] < 0)
    streams = list(dict.fromkeys(columns.lane[at[unnamed]].tolist()))
    info = trace.header.get("distributedInfo")
    configured = {
        str(entry.get("pg_name")): entry for entry in (info or {}).get("pg_config", ()) if isinstance(entry, dict)
    }
    backend = (info or {}).get("backend", "nccl")
    found: list[_Group] = []
    for event in at.tolist():
        detail = trace.details[columns.detail[event]] if columns.detail[event] >= 0 else None
        if isinstance(detail, Message):
            ranks = _ranks(detail.ranks) or _ranks(configured.get(detail.group, {}).get("ranks"))
            found.append(
                _Group(detail.group or DEFAULT_GROUP, "nccl", detail.size or (len(ranks) if ranks else None), ranks)
            )
            continue
        host = (
            kernels.HOST_COLLECTIVE.search(trace.names[columns.name[event]]) if columns.kind[event] != KERNEL else None
        )
        name, ranks = DEFAULT_GROUP, None
        if host is None and len(streams) > 1:
            name = f"stream {streams.index(int(columns.lane[event])) + 1}"
        elif len(configured) == 1:
            name, ranks = next((key, _ranks(entry.get("ranks"))) for key, entry in configured.items())
        found.append(_Group(name, host.group(1) if host else backend, len(ranks) if ranks else None, ranks))
    return found


def _ranks(value: object) -> tuple[int, ...] | None:
    """Ranks from a list, or from its text; None where the text was shortened (`[0, 1, ..., 511]`)."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list) and value and all(isinstance(rank, int) for rank in value):
        return tuple(value)
    return None


def _series(timeline: Timeline, group: _Group, at: Ints, step: Ints, wanted: Mask) -> Collectives:
    """The columns of one group; those that are not wanted only tell where the one before ended."""
    trace, columns = timeline.trace, timeline.trace.columns
    ends = columns.start[at] + columns.duration[at]
    since = np.r_[columns.start.min(), np.maximum.accumulate(ends)[:-1]]
    left_out = max(0, int(wanted.sum()) - MAX_COLLECTIVES)
    at, step, since = (column[wanted][:MAX_COLLECTIVES] for column in (at, step, since))
    starts, durations = columns.start[at], columns.duration[at]
    exposed = overlap(starts, starts + durations, subtract(times(trace, at), timeline.whole["compute"]))
    messages = [trace.details[detail] if detail >= 0 else None for detail in columns.detail[at].tolist()]
    operations = [
        kernels.operation(message.name if isinstance(message, Message) and message.name else trace.names[name])
        for message, name in zip(messages, columns.name[at].tolist(), strict=True)
    ]
    names = tuple(dict.fromkeys(operations))
    since = np.minimum(since, starts)
    before = {name: overlap(since, starts, timeline.whole[name]) for name in SHARES if name != "communication"}
    return Collectives(
        group=group.name,
        backend=group.backend,
        ranks=group.ranks,
        size=group.size,
        names=names,
        name=tuple(names.index(operation) for operation in operations),
        step=tuple(step.tolist()),
        start_ns=tuple(starts.tolist()),
        duration_ns=tuple(durations.tolist()),
        exposed_ns=tuple(exposed.tolist()),
        bytes=tuple(message.bytes if isinstance(message, Message) else None for message in messages),
        before_ns={name: tuple(spent.tolist()) for name, spent in before.items() if spent.any()},
        left_out=left_out,
    )
