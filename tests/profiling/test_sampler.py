"""The sampler on a stand-in for NVML."""

import os
import threading
from types import SimpleNamespace
from typing import Any

from gpudoctor.profiling import sampler as room
from gpudoctor.profiling.sampler import Sampler


class NvmlError(Exception):
    """As pynvml's NVMLError."""


def _refuses(*_: Any) -> Any:
    raise NvmlError("Not Supported")


def _nvml(**changes: Any) -> SimpleNamespace:
    """Two boards; this process holds 545 MB on the first, a stranger something on the second."""
    processes = {0: [(os.getpid(), 545 * 2**20), (1, 7)], 1: [(os.getpid(), 0)]}
    calls = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "nvmlMemory_v2": 2,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda gpu, version=1: SimpleNamespace(used=1000 + gpu, total=10**9),
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=50),
        "nvmlDeviceGetClockInfo": lambda gpu, kind: 1980,
        "nvmlDeviceGetPowerUsage": lambda gpu: 70500,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
            SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in processes[gpu]
        ],
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
        "nvmlDeviceGetName": lambda gpu: "NVIDIA H200",
    }
    return SimpleNamespace(**{**calls, **changes})


def _sampled(nvml: SimpleNamespace) -> Any:
    sampler = Sampler(nvml)
    sampler.start()
    while not sampler._at_s and sampler.is_alive():
        pass
    return sampler.result({os.getpid(): 3})


def test_memory_is_told_by_process_and_rank_and_strangers_are_left_out() -> None:
    watch = _sampled(_nvml())
    first, second = watch.gpus
    assert [(holder.rank, holder.peak_bytes) for holder in first.holders] == [(3, 545 * 2**20)]
    assert [(holder.rank, holder.peak_bytes) for holder in second.holders] == [(3, 0)]
    assert (first.utilization_ratio[0], first.clock_sm_mhz[0], first.power_w[0]) == (0.5, 1980, 70.5)
    assert (first.peak_bytes, second.peak_bytes) == (1000, 1001)


def test_what_a_board_does_not_tell_is_none() -> None:
    watch = _sampled(
        _nvml(
            nvmlDeviceGetPowerUsage=_refuses,
            nvmlDeviceGetComputeRunningProcesses=_refuses,
            nvmlDeviceGetUtilizationRates=_refuses,
        )
    )
    gpu = watch.gpus[0]
    assert (gpu.power_w[0], gpu.utilization_ratio[0], gpu.holders) == (None, None, ())


def test_without_a_driver_there_is_nothing_to_tell() -> None:
    assert _sampled(_nvml(nvmlInit=_refuses)) is None


def test_a_driver_that_hangs_holds_nobody_up() -> None:
    sampler = Sampler(_nvml(nvmlInit=threading.Event().wait))
    sampler.start()
    assert sampler.result({}) is None


def test_long_runs_are_thinned_and_all_series_keep_one_length(monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MOST_SAMPLES", 8)
    monkeypatch.setattr(room, "EVERY_S", 0.0)
    sampler = Sampler(_nvml())
    sampler.start()
    while sampler._every_s == 0.0 and len(sampler._at_s) < 3:
        pass
    watch = sampler.result({})
    assert watch is not None
    assert len(watch.at_s) <= 8
    assert {len(gpu.memory_used_bytes) for gpu in watch.gpus} == {len(watch.at_s)}
