"""What the agent saw in one process, kept in memory and written as the JSON of `gpudoctor.facts.job.Job`."""

from __future__ import annotations

import statistics
import sys
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

MOST_TIMES = 2000
"""Kept of each series of times."""


class Pause:
    """Pauses of one kind: garbage collections, checkpoints."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.longest_s = 0.0
        self.where: Optional[str] = None

    def add(self, duration_s: float, where: Optional[str] = None) -> None:
        self.count += 1
        self.total_s += duration_s
        if duration_s >= self.longest_s:
            self.longest_s, self.where = duration_s, where

    def as_json(self, kind: str, steps: int) -> Dict[str, Any]:
        return {
            "kind": kind,
            "count": self.count,
            "total_ms": self.total_s * 1e3,
            "longest_ms": self.longest_s * 1e3,
            "per_step_ms": self.total_s * 1e3 / steps if steps else None,
            "where": self.where,
        }


def cpu_wait_s() -> Optional[float]:
    """How long this thread has been ready to run while others had the CPU; None where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class Loader:
    """One DataLoader of the job; those that one line makes anew for each epoch count as one."""

    def __init__(self, loader: Any, created_at: Optional[str]) -> None:
        self.setup = {
            "workers": loader.num_workers,
            "batch_size": loader.batch_size,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(loader.persistent_workers),
            "prefetch_factor": loader.prefetch_factor,
            "iterable": _is_iterable(loader.dataset),
            "dataset": type(loader.dataset).__name__,
            "sampler": type(loader.sampler).__name__,
            "created_at": created_at,
        }
        self.length = _length(loader.dataset)
        self.batches = 0
        self.epochs = 0
        self.waits_s: List[float] = []
        self.starts_s: List[float] = []
        self.started_s: Optional[float] = None
        self.costs: List[Tuple[float, float, int]] = []
        """Wall seconds, CPU seconds and bytes read of batches made in this process (no workers)."""
        self.batch_bytes: Optional[int] = None
        self.samples: Optional[int] = None
        self.tokens: Optional[int] = None

    def is_like(self, other: "Loader") -> bool:
        """Made at the same line, over as much data."""
        return self.setup == other.setup and self.length == other.length and self.setup["created_at"] is not None

    def as_json(self) -> Dict[str, Any]:
        walls, cpus, reads = zip(*self.costs) if self.costs else ((), (), ())
        return {
            **self.setup,
            "batches": self.batches,
            "epochs": self.epochs,
            "wait_ms": _median_ms(self.waits_s),
            "start_ms": _median_ms(self.starts_s),
            "batch_ms": _median_ms(walls),
            "batch_cpu_ms": _median_ms(cpus),
            "batch_read_bytes": int(statistics.median(reads)) if reads else None,
            "batch_memory_bytes": self.batch_bytes,
        }


def look_at_batch(loader: Loader, batch: Any) -> None:
    """Take its size in samples, tokens and bytes from its tensors, without touching their data."""
    tensors = list(_tensors(batch))
    if not tensors:
        return
    loader.batch_bytes = sum(tensor.nelement() * tensor.element_size() for tensor in tensors)
    first = tensors[0]
    loader.samples = int(first.shape[0]) if first.dim() else None
    if first.dim() == 2 and not first.is_floating_point():
        loader.tokens = int(first.nelement())


def _tensors(value: Any, depth: int = 3) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value[:8]:
            yield from _tensors(item, depth - 1)


def _length(dataset: Any) -> Optional[int]:
    try:
        return len(dataset)
    except Exception:  # a dataset's own code: it may do anything
        return None


def _is_iterable(dataset: Any) -> bool:
    return isinstance(dataset, sys.modules["torch"].utils.data.IterableDataset)


def _median_ms(times_s: Any) -> Optional[float]:
    return statistics.median(times_s) * 1e3 if times_s else None


def caller(skip: Tuple[str, ...] = ("torch", "gpudoctor_agent")) -> Optional[str]:
    """`file:line` of the nearest frame that is the job's own: not of torch, of the agent or of an installed package."""
    frame: Optional[FrameType] = sys._getframe(1)
    nearest: Optional[str] = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in skip and not frame.f_code.co_filename.startswith("<"):
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if "site-packages" not in frame.f_code.co_filename:
                return where
            nearest = nearest or where
        frame = frame.f_back
    return nearest
