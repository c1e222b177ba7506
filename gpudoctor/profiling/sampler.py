"""Look at the GPUs through NVML while the job runs: memory by process, utilisation, clocks, power."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from gpudoctor.facts.watch import Holder, Watch, WatchedGpu

EVERY_S = 0.25
MOST_SAMPLES = 4000
"""Then every second one is dropped, and the pace halves."""


@dataclass
class _Series:
    used: list[int | None] = field(default_factory=list)
    utilization: list[float | None] = field(default_factory=list)
    clock: list[int | None] = field(default_factory=list)
    power: list[float | None] = field(default_factory=list)
    holders: dict[int, int | None] = field(default_factory=dict)

    def thin(self) -> None:
        for series in (self.used, self.utilization, self.clock, self.power):
            del series[1::2]


class Sampler(threading.Thread):
    """Samples from its start to `result`.

    WHY a thread: a driver in trouble can hold any call for ever, and then it holds this thread alone.
    """

    def __init__(self, nvml: Any = None, job_pid: int | None = None) -> None:
        """`nvml` is pynvml or what stands for it; `job_pid` the process at the root of the job (default: our own)."""
        super().__init__(daemon=True)
        self._nvml = nvml
        self._job_pid = job_pid or os.getpid()
        self._every_s = EVERY_S
        self._start_s = time.monotonic()
        self._over = threading.Event()
        self._at_s: list[float] = []
        self._handles: list[Any] = []
        self._series: list[_Series] = []

    def run(self) -> None:
        """Until `result` is asked for. Without a driver it ends at once: `check` tells about that."""
        with contextlib.suppress(Exception):
            if self._nvml is None:
                import pynvml

                self._nvml = pynvml
            self._nvml.nvmlInit()
            self._handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())
            ]
            self._series = [_Series() for _ in self._handles]
            while self._handles:
                self.sample()
                if self._over.wait(self._every_s):
                    return

    def sample(self) -> None:
        """One look at every board."""
        job = _tree(self._job_pid)
        for handle, series in zip(self._handles, self._series, strict=True):
            self._look(handle, series, job)
        self._at_s.append(time.monotonic() - self._start_s)
        if len(self._at_s) >= MOST_SAMPLES:
            self._every_s *= 2
            del self._at_s[1::2]
            for series in self._series:
                series.thin()

    def _look(self, handle: Any, series: _Series, job: set[int]) -> None:
        nvml = self._nvml
        series.used.append(_told(nvml, self._used_bytes, handle))
        series.utilization.append(_told(nvml, lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100, handle))
        series.clock.append(_told(nvml, lambda gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)), handle))
        series.power.append(_told(nvml, lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000, handle))
        for process in _told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []:
            if process.pid in job:
                held = process.usedGpuMemory
                before = series.holders.get(process.pid)
                series.holders[process.pid] = max(before or 0, held) if held is not None else before

    def _used_bytes(self, handle: Any) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2).used)
        except (self._nvml.NVMLError, AttributeError):
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)

    def result(self, ranks: Mapping[int, int]) -> Watch | None:
        """All samples; `ranks` says which process is which rank (pid → rank). None without NVML."""
        self._over.set()
        self.join(timeout=1.0)
        if not self._at_s:
            return None
        nvml, count = self._nvml, len(self._at_s)
        return Watch(
            at_s=tuple(self._at_s),
            gpus=tuple(
                WatchedGpu(
                    index=index,
                    uuid=_told(nvml, nvml.nvmlDeviceGetUUID, handle),
                    name=_told(nvml, nvml.nvmlDeviceGetName, handle),
                    memory_total_bytes=_told(nvml, lambda gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total), handle),
                    memory_used_bytes=tuple(series.used[:count]),
                    utilization_ratio=tuple(series.utilization[:count]),
                    clock_sm_mhz=tuple(series.clock[:count]),
                    power_w=tuple(series.power[:count]),
                    holders=tuple(
                        Holder(pid=pid, rank=ranks.get(pid), peak_bytes=held)
                        for pid, held in sorted(series.holders.items())
                    ),
                )
                for index, (handle, series) in enumerate(zip(self._handles, self._series, strict=True))
            ),
        )


def _told(nvml: Any, read: Callable[[Any], Any], handle: Any) -> Any:
    """None where this board does not answer this question."""
    try:
        return read(handle)
    except (nvml.NVMLError, AttributeError):
        return None


def _tree(pid: int) -> set[int]:
    try:
        root = psutil.Process(pid)
        return {pid, *(child.pid for child in root.children(recursive=True))}
    except psutil.Error:
        return set()
