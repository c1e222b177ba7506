"""One rank: its trace in, a record of kilobytes out. Runs next to the data, so that only records travel."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from gpudoctor.facts.run import Rank
from gpudoctor.profiling import device, exchange, kernels, threads
from gpudoctor.profiling.events import ANNOTATION, KERNEL, OPERATOR
from gpudoctor.profiling.intervals import clip, intersect, join, length
from gpudoctor.profiling.timeline import Timeline, collectives, measure, named, times
from gpudoctor.profiling.trace import Trace, read


def digest(path: Path, *, workers: int = 1, rank: int | None = None) -> Rank:
    """Read and measure one trace. `rank` is taken where the trace itself does not say which it is.

    Raises TraceError, OSError.
    """
    timeline = measure(read(path, workers=workers))
    trace = timeline.trace
    info = _dict(trace.header.get("distributedInfo"))
    own = info.get("rank")
    board = _board(timeline)
    steps = timeline.steps
    communicating = clip(_communicating(timeline), timeline.start, timeline.end)
    optimizer_steps = timeline.asked(kernels.OPTIMIZER, ANNOTATION, OPERATOR)
    forwards = timeline.asked(re.compile(re.escape(kernels.DDP_FORWARD)), ANNOTATION, OPERATOR)
    return Rank(
        rank=own if isinstance(own, int) else _rank_in_name(path) if rank is None else rank,
        pid=_pid(trace),
        trace=path.name,
        device="cpu" if timeline.on_cpu else board.get("name"),
        device_index=None if timeline.on_cpu else _device_index(timeline),
        device_memory_bytes=board.get("totalGlobalMem"),
        compute_capability=f"{board['computeMajor']}.{board['computeMinor']}" if "computeMajor" in board else None,
        world_size=info.get("world_size"),
        backend=info.get("backend"),
        nccl_version=info.get("nccl_version"),
        steps=len(steps) or None,
        step_ms=timeline.window / len(steps) / 1e6 if steps else None,
        shares=timeline.shares,
        clock_base_ns=trace.clock_base_ns,
        window_ns=(timeline.start, timeline.end),
        each_step=steps,
        busy_ns=timeline.window - length(timeline.idle),
        communication_ns=length(communicating),
        hidden_communication_ns=length(intersect(communicating, timeline.parts["compute"])),
        kernels=device.kernel_stats(timeline),
        copies=device.copy_stats(timeline),
        collectives=exchange.collective_series(timeline),
        syncs=threads.sync_calls(timeline),
        allocations=threads.allocations(timeline),
        launches=threads.launch_stats(timeline),
        loader=threads.loader_stats(timeline),
        optimizer_steps=len(optimizer_steps) or None,
        forwards=len(forwards) or None,
        gaps=threads.longest_gaps(timeline),
        timeline=threads.one_step(timeline),
        memory_peak_bytes=trace.memory_peak_bytes,
        events=trace.events,
        damage=trace.damage,
    )


def _communicating(timeline: Timeline) -> Any:
    """Time in which a collective runs, hidden or not."""
    trace = timeline.trace
    on_host = named(trace, kernels.HOST_COLLECTIVE, ANNOTATION)
    return join(times(trace, collectives(trace)), times(trace, on_host))


def _device_index(timeline: Timeline) -> int | None:
    """Device that ran most kernels; traces name it where the host's events have their process."""
    trace = timeline.trace
    kernel = timeline.work[trace.columns.kind[timeline.work] == KERNEL]
    lanes = trace.columns.lane[kernel if len(kernel) else timeline.work]
    index = Counter(trace.lanes[lane][0] for lane in lanes.tolist()).most_common(1)[0][0]
    return index if isinstance(index, int) else None


def _board(timeline: Timeline) -> dict[str, Any]:
    """The device's properties as the header has them; {} where it has none, and on a job without a device."""
    boards = timeline.trace.header.get("deviceProperties")
    if timeline.on_cpu or not isinstance(boards, list):
        return {}
    index = _device_index(timeline)
    return next((_dict(board) for board in boards if _dict(board).get("id") == index), {})


def _pid(trace: Trace) -> int | None:
    """Process most of the host's events are of."""
    host = trace.columns.lane[trace.columns.kind < KERNEL]
    processes = Counter(trace.lanes[lane][0] for lane in host[:10_000].tolist()).most_common(1)
    return processes[0][0] if processes and isinstance(processes[0][0], int) else None


def _rank_in_name(path: Path) -> int:
    """`worker-rank3.json.gz`, `rank_3.pt.trace.json` → 3; 0 where the name holds none."""
    found = re.search(r"rank[-_.]?(\d+)", path.name, re.IGNORECASE)
    return int(found.group(1)) if found else 0


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
