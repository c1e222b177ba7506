"""Write Kineto traces of a job of N ranks with planted faults, whose waits and transfers are known to the microsecond.

The job: each step fetches a batch, runs `LAYERS` layers of kernels, reduces `buckets` buckets one after the other on a
stream of their own, runs the optimizer and waits for the device. All durations are whole microseconds, so that they
are exact in the old format too.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KERNELS = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": 300,
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float> >(int)": 60,
    "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float)": 40,
    "void at::native::softmax_warp_forward<float, float, float, 10, false, false>(float*, int)": 100,
}
"""Name → microseconds."""
LAYERS = 3
OPTIMIZER_US = 200
FETCH_US = 150
OP_US = 12
LAUNCH_US = 6
SYNC_US = 10
COMPUTE_US = LAYERS * sum(KERNELS.values())
"""Of a step, without the optimizer."""


@dataclass(frozen=True)
class Job:
    """A healthy job of `ranks` ranks where nothing is planted."""

    ranks: int
    steps: int = 4
    """Profiled; the first of them only says where the window begins."""
    old: bool = False
    """As torch 1.x wrote: whole microseconds since 1970, other categories, no metadata on collectives."""
    group_size: int | None = None
    """Ranks of a process group; None: one group of all."""
    buckets: int = 3
    bucket_bytes: int = 25 << 20
    transfer_us: int = 1000
    """Of one bucket."""
    slow_groups: dict[int, float] = field(default_factory=dict)
    """Number of a group → how many times longer its transfers take."""
    late_us: dict[int, int] = field(default_factory=dict)
    """Rank → how long its host does something else before each step's first kernel."""
    gpu_slowdown: dict[int, int] = field(default_factory=dict)
    """Rank → how many times longer its kernels take."""
    larger: dict[int, int] = field(default_factory=dict)
    """Rank → how many times more blocks its kernels have, and time they take."""
    more_layers: dict[int, int] = field(default_factory=dict)
    """Rank → layers it runs more than the others."""
    clock_offset_s: dict[int, float] = field(default_factory=dict)
    """Rank → how far its host's clock is ahead."""

    @property
    def members(self) -> list[list[int]]:
        size = self.group_size or self.ranks
        return [list(range(first, min(first + size, self.ranks))) for first in range(0, self.ranks, size)]


def write(job: Job, folder: Path, *, zipped: bool = False) -> list[Path]:
    """One trace a rank: `rank0.json`, …"""
    ranks = [_Rank(job, rank) for rank in range(job.ranks)]
    for step in range(job.steps):
        for rank in ranks:
            rank.compute(step)
        for group, members in enumerate(job.members):
            for _ in range(job.buckets):
                arrivals = [ranks[member].reduce_asked() for member in members]
                end = max(arrivals) + round(job.transfer_us * job.slow_groups.get(group, 1))
                for member, arrival in zip(members, arrivals, strict=True):
                    ranks[member].reduced(group, arrival, end)
        for rank in ranks:
            rank.finish()
    return [rank.write(folder, zipped) for rank in ranks]


class _Rank:
    """A host thread, a compute stream (7) and a communication stream (20), each with the time it is busy until."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.host = self.stream = self.reducing = 1000
        self.correlation = 0
        self.events: list[dict[str, Any]] = []
        self.opened = 0
        self.step = 0

    def compute(self, step: int) -> None:
        """From the fetch to the last kernel of the backward pass."""
        self.step, self.opened = step, self.host
        self.host_event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", FETCH_US)
        self.host += FETCH_US + self.job.late_us.get(self.rank, 0)
        longer = self.job.gpu_slowdown.get(self.rank, 1) * self.job.larger.get(self.rank, 1)
        for _ in range(LAYERS + self.job.more_layers.get(self.rank, 0)):
            for name, duration in KERNELS.items():
                self.kernel(name, duration * longer)

    def reduce_asked(self) -> int:
        """When this rank's part of the next bucket is ready."""
        self.launch("c10d::allreduce_")
        return max(self.stream, self.reducing, self.host)

    def reduced(self, group: int, arrival: int, end: int) -> None:
        self.reducing = end
        name = (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
            if self.job.old
            else ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        )
        elements = self.job.bucket_bytes // 4
        told = {
            "Collective name": "allreduce",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": len(self.job.members[group]),
            "dtype": "Float",
            "Process Group Name": str(group),
            "Process Group Description": "default_pg" if group == 0 else "undefined",
            "Process Group Ranks": json.dumps(self.job.members[group]),
        }
        self.device_event(name, arrival, end - arrival, 20, {} if self.job.old else told, [24, 1, 1])

    def finish(self) -> None:
        """The optimizer, and a wait for the device."""
        begin = self.host
        self.stream = max(self.stream, self.reducing)
        self.kernel(
            "void multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(float)",
            OPTIMIZER_US * self.job.gpu_slowdown.get(self.rank, 1),
        )
        self.host_event("user_annotation", "Optimizer.step#AdamW.step", self.host - begin, begin)
        self.host_event(
            "cuda_runtime",
            "cudaStreamSynchronize",
            max(self.stream - self.host, 0) + SYNC_US,
            self.host,
            {"correlation": self.next()},
        )
        self.host = max(self.stream, self.host) + SYNC_US
        self.host_event("user_annotation", f"ProfilerStep#{self.step}", self.host - self.opened, self.opened)

    def kernel(self, name: str, duration: int) -> None:
        launched = self.launch("aten::op")
        self.stream = max(self.stream, launched + LAUNCH_US + 2)
        grid = [132 * self.job.larger.get(self.rank, 1), 1, 1]
        self.device_event(name, self.stream, duration, 7, {}, grid)
        self.stream += duration

    def launch(self, operator: str) -> int:
        """An operator with a launch call in it. Returns when the call began."""
        self.host_event("cpu_op", operator, OP_US)
        begin = self.host + 3
        self.host_event("cuda_runtime", "cudaLaunchKernel", LAUNCH_US, begin, {"correlation": self.next()})
        self.host += OP_US
        return begin

    def next(self) -> int:
        self.correlation += 1
        return self.correlation

    def host_event(
        self, kind: str, name: str, duration: int, begin: int | None = None, args: dict[str, Any] | None = None
    ) -> None:
        begin = self.host if begin is None else begin
        self.add(
            kind, name, 100 + self.rank, 100 + self.rank, begin, duration, args or {"External id": len(self.events)}
        )

    def device_event(
        self, name: str, begin: int, duration: int, stream: int, told: dict[str, Any], grid: list[int]
    ) -> None:
        args = {
            "device": 0,
            "context": 1,
            "stream": stream,
            "correlation": self.correlation,
            "grid": grid,
            "block": [128, 1, 1],
        }
        self.add("kernel", name, 0, stream, begin, duration, {**args, **told})
        self.events.append(
            {
                "ph": "f",
                "id": self.correlation,
                "pid": 0,
                "tid": stream,
                "ts": begin,
                "cat": "async_cpu_to_gpu" if self.job.old else "ac2g",
                "name": "ac2g",
                "bp": "e",
            }
        )

    def add(self, kind: str, name: str, pid: int, tid: int, begin: int, duration: int, args: dict[str, Any]) -> None:
        category = (
            {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}.get(kind, kind)
            if self.job.old
            else kind
        )
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": begin,
                "dur": duration,
                "args": args,
            }
        )

    def write(self, folder: Path, zipped: bool) -> Path:
        """In Kineto's own layout, which the reader's cuts depend on."""
        ahead = round(self.job.clock_offset_s.get(self.rank, 0) * 1_000_000)
        zero = 1_650_000_000_000_000 if self.job.old else 5_276_568_000_000
        shifted = [{**event, "ts": self.stamp(event["ts"] + zero + ahead)} for event in self.events]
        head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0}
            ],
        }
        if not self.job.old:
            groups = [
                {
                    "pg_name": str(number),
                    "pg_desc": "",
                    "backend_config": "cuda:nccl",
                    "pg_size": len(own),
                    "ranks": own,
                }
                for number, own in enumerate(self.job.members)
            ]
            head["distributedInfo"] = {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.job.ranks,
                "pg_count": len(groups),
                "pg_config": groups,
                "nccl_version": "2.28.9",
            }
            head["baseTimeNanoseconds"] = 1_790_857_026_000_000_000
        body = ",\n".join(_as_kineto(event) for event in shifted)
        text = json.dumps(head)[:-1] + ',\n  "traceEvents": [\n' + body + '\n  ],\n  "traceName": "trace.json"\n}\n'
        path = folder / f"rank{self.rank}.json{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(text.encode(), 1) if zipped else text.encode())
        return path

    def stamp(self, microseconds: int) -> int | float:
        """New traces have nanoseconds behind the point."""
        return microseconds if self.job.old else microseconds + 0.25


def _as_kineto(event: dict[str, Any]) -> str:
    first = ", ".join(f'"{key}": {json.dumps(event[key])}' for key in ("ph", "cat", "name", "pid", "tid"))
    rest = [f'"{key}": {json.dumps(event[key])}' for key in ("id", "bp", "ts", "dur") if key in event]
    lines = [first, ", ".join(rest)]
    if "args" in event:
        lines.append('"args": {\n      ' + json.dumps(event["args"])[1:-1] + "\n    }")
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"
