"""A profiled job as the JSON report tells it: kilobytes a rank.

Columns that only other tools of ours read again stay in the run folder's run.json: each collective, each step, the gaps
and the timeline of a rank, the groups of its kernels, the times and losses of its steps, and NVML's samples, of which
the report has the peaks and means. The machine is the report's `snapshot`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpudoctor.facts.job import Job
from gpudoctor.facts.run import (
    Allocations,
    Arrival,
    CopyStats,
    KernelStats,
    LaunchStats,
    Link,
    LoaderStats,
    Pace,
    Rank,
    StepShares,
    SyncCall,
)
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.run import Run

Told = TypeVar("Told", bound=msgspec.Struct)


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. Each field is the one of the same name of a run's Rank."""

    rank: int
    local_rank: int | None
    host: str | None
    pid: int | None
    trace: str | None
    device: str | None
    device_index: int | None
    compute_capability: str | None
    backend: str | None
    steps: int | None
    step_ms: float | None
    shares: StepShares | None
    window_ns: tuple[int, int] | None
    busy_ns: int | None
    communication_ns: int | None
    hidden_communication_ns: int | None
    kernels: KernelStats | None
    """Without its `groups`."""
    copies: tuple[CopyStats, ...]
    syncs: tuple[SyncCall, ...]
    allocations: Allocations | None
    launches: LaunchStats | None
    loader: LoaderStats | None
    optimizer_steps: int | None
    forwards: int | None
    memory_peak_bytes: int | None
    events: int | None
    damage: str | None
    job: Job | None
    """Without `step_times_ms` and `losses`."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML saw of one board while the job ran."""

    index: int
    uuid: str | None
    name: str | None
    memory_total_bytes: int | None
    memory_peak_bytes: int | None
    utilization_mean: float | None
    """0 to 1, of all samples."""
    holders: tuple[Holder, ...]


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The `run` of a report. Each field but `gpus` is the one of the same name of a Run."""

    world_size: int | None
    steps: int | None
    step_ms: float | None
    shares: StepShares | None
    exit_code: int | None
    started_at: str | None
    command: tuple[str, ...] | None
    samples_per_s: float | None
    tokens_per_s: float | None
    ended_by_us: bool | None
    stalled_s: float | None
    stacks: dict[str, str]
    error_text: str | None
    missing: dict[str, str]
    unread: dict[str, str]
    ranks: tuple[RankReport, ...]
    arrivals: tuple[Arrival, ...]
    links: tuple[Link, ...]
    paces: tuple[Pace, ...]
    gpus: tuple[GpuReport, ...] | None
    """None without NVML."""


def told(run: Run) -> RunReport:
    """The part of it that a report has room for."""
    return _same(RunReport, run, ranks=tuple(map(_rank, run.ranks)), gpus=_gpus(run.watch))


def _rank(rank: Rank) -> RankReport:
    kernels = rank.kernels and msgspec.structs.replace(rank.kernels, groups=())
    job = rank.job and msgspec.structs.replace(rank.job, step_times_ms=(), losses=())
    return _same(RankReport, rank, kernels=kernels, job=job)


def _gpus(watch: Watch | None) -> tuple[GpuReport, ...] | None:
    return None if watch is None else tuple(map(_gpu, watch.gpus))


def _gpu(board: WatchedGpu) -> GpuReport:
    busy = [ratio for ratio in board.utilization_ratio if ratio is not None]
    mean = sum(busy) / len(busy) if busy else None
    return _same(GpuReport, board, memory_peak_bytes=board.peak_bytes, utilization_mean=mean)


def _same(kind: type[Told], source: msgspec.Struct, **changed: Any) -> Told:
    """Every field of `kind` as it is in `source`, but for those that change."""
    kept = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in changed}
    return kind(**kept, **changed)
