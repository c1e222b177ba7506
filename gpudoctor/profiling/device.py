"""What the device did in the window: kernels and copies, grouped and summed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.facts.run import CopyStats, KernelGroup, KernelStats
from gpudoctor.profiling import kernels
from gpudoctor.profiling.events import ANNOTATION, COPY, KERNEL, MEMSET
from gpudoctor.profiling.intervals import Ints, holding, outermost, overlap
from gpudoctor.profiling.timeline import Timeline, collectives, named, times
from gpudoctor.profiling.trace import Trace

MAX_GROUPS = 200
NAME_LENGTH = 160


def kernel_stats(timeline: Timeline) -> KernelStats:
    """Kernels without collectives; on a job without a device the outermost operators."""
    trace, columns = timeline.trace, timeline.trace.columns
    work = timeline.work[timeline.inside]
    if timeline.on_cpu:
        chosen = work[outermost(columns.lane[work], columns.start[work], columns.duration[work])]
    else:
        chosen = np.setdiff1d(work[columns.kind[work] == KERNEL], collectives(trace))
    groups = _Groups.of(trace, chosen, timeline.on_cpu)
    gemm = groups.of_kind("gemm")
    optimizer = chosen[_in_optimizer(timeline, chosen)]
    fused = _named(trace, optimizer, kernels.is_fused_optimizer)
    foreach = _named(trace, optimizer, lambda name: "multi_tensor_apply" in name) & ~fused
    return KernelStats(
        count=len(chosen),
        duration_ns=int(columns.duration[chosen].sum()),
        median_ns=int(np.median(columns.duration[chosen])) if len(chosen) else None,
        gemm_ns=groups.total(gemm),
        tensor_core_gemm_ns=groups.total(gemm & groups.where(lambda name: kernels.tensor_cores(name) is True)),
        plain_gemm_ns=groups.total(gemm & groups.where(lambda name: kernels.tensor_cores(name) is False)),
        tf32_gemm_ns=groups.total(gemm & groups.where(kernels.is_tf32)),
        unaligned_gemm_ns=groups.total(gemm & groups.where(kernels.is_unaligned)),
        attention_ns=groups.total(groups.of_kind("attention")),
        softmax_ns=groups.total(groups.of_kind("softmax")),
        softmax_count=int(groups.count[groups.of_kind("softmax")].sum()),
        optimizer_ns=int(columns.duration[optimizer].sum()),
        optimizer_count=len(optimizer),
        optimizer_fused_count=int(fused.sum()),
        optimizer_foreach_count=int(foreach.sum()),
        layout_ns=groups.total(groups.of_kind("layout")),
        memset_count=int((columns.kind[work] == MEMSET).sum()),
        groups=groups.dearest(MAX_GROUPS),
        groups_left_out=max(0, len(groups.names) - MAX_GROUPS),
    )


@dataclass(frozen=True)
class _Groups:
    """Launches of one kernel with one grid taken together, the dearest first."""

    names: list[str]
    grids: list[str]
    count: Ints
    duration: Ints
    median: Ints
    on_cpu: bool

    @classmethod
    def of(cls, trace: Trace, events: Ints, on_cpu: bool) -> _Groups:
        columns, details = trace.columns, [*(d if isinstance(d, str) else "" for d in trace.details), ""]
        keys = columns.name[events].astype(np.int64) * (len(details) + 1) + columns.detail[events] + 1
        order = np.lexsort((columns.duration[events], keys))
        first, count = np.unique(keys[order], return_index=True, return_counts=True)[1:]
        sorted_durations = columns.duration[events][order]
        duration = np.add.reduceat(sorted_durations, first) if len(first) else count
        median = sorted_durations[first + count // 2]
        members, dearest = events[order][first], np.argsort(-duration, kind="stable")
        members = members[dearest]
        return cls(
            names=[trace.names[name] for name in columns.name[members]],
            grids=[details[detail] for detail in columns.detail[members]],
            count=count[dearest],
            duration=duration[dearest],
            median=median[dearest],
            on_cpu=on_cpu,
        )

    def where(self, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
        return np.array([holds(name) for name in self.names], dtype=bool)

    def of_kind(self, kind: str) -> NDArray[np.bool_]:
        return self.where(lambda name: not self.on_cpu and kernels.kind(name) == kind)

    def total(self, mask: NDArray[np.bool_]) -> int:
        return int(self.duration[mask].sum())

    def dearest(self, most: int) -> tuple[KernelGroup, ...]:
        return tuple(
            KernelGroup(
                name=_short(name),
                grid=self.grids[index],
                kind="operator" if self.on_cpu else kernels.kind(name),
                tensor_cores=kernels.tensor_cores(name) if not self.on_cpu and kernels.kind(name) == "gemm" else None,
                count=int(self.count[index]),
                duration_ns=int(self.duration[index]),
                median_ns=int(self.median[index]),
            )
            for index, name in enumerate(self.names[:most])
        )


def _short(name: str) -> str:
    """Names of templates run to a thousand characters; those that differ only at the end stay apart by a checksum."""
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[: NAME_LENGTH - 10]}… {zlib.crc32(name.encode()):08x}"


def _in_optimizer(timeline: Timeline, chosen: Ints) -> NDArray[np.bool_]:
    """Which of these kernels were launched inside `Optimizer.step`."""
    spans = times(timeline.trace, named(timeline.trace, kernels.OPTIMIZER, ANNOTATION))
    launch = timeline.launch[np.searchsorted(timeline.work, chosen)]
    return (holding(timeline.trace.columns.start[launch], spans) >= 0) & (launch >= 0)


def _named(trace: Trace, events: Ints, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
    """For each event whether its name holds."""
    return np.array([holds(name) for name in trace.names], dtype=bool)[trace.columns.name[events]]


def copy_stats(timeline: Timeline) -> tuple[CopyStats, ...]:
    """Copies by direction and memories, the longest first."""
    trace, columns = timeline.trace, timeline.trace.columns
    chosen = timeline.work[timeline.inside]
    chosen = chosen[columns.kind[chosen] == COPY]
    exposed = overlap(columns.start[chosen], columns.start[chosen] + columns.duration[chosen], timeline.parts["copies"])
    ends = [kernels.copy_ends(name) for name in trace.names]
    stats = []
    for kind in {ends[name] for name in columns.name[chosen]}:
        mine = np.array([end == kind for end in ends], dtype=bool)[columns.name[chosen]]
        sizes = columns.bytes[chosen[mine]]
        stats.append(
            CopyStats(
                direction=kind[0],
                source=kind[1],
                target=kind[2],
                count=int(mine.sum()),
                duration_ns=int(columns.duration[chosen[mine]].sum()),
                exposed_ns=int(exposed[mine].sum()),
                bytes=int(sizes.sum()) if (sizes >= 0).all() else None,
            )
        )
    return tuple(sorted(stats, key=lambda copy: (-copy.duration_ns, copy.direction, copy.source or "")))
