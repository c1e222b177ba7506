"""Profiled jobs made by hand."""

import msgspec

from gpudoctor.facts.job import (
    Job,
    LoaderSetup,
    MemoryUse,
    OptimizerSetup,
    ParallelSetup,
    Pause,
    PrecisionSetup,
    SyncPlace,
)
from gpudoctor.facts.run import (
    Arrival,
    Collectives,
    Gap,
    KernelGroup,
    KernelStats,
    Link,
    Pace,
    Rank,
    Segment,
    StepShares,
)
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.findings import Cost, Evidence, Finding, Fix, Severity
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

GIB = 2**30
MS = 1_000_000

ALIKE = StepShares(compute=0.52, communication=0.2, copies=0.01, loader=0.22, host=0.05)
LATE = StepShares(compute=0.52, communication=0.02, copies=0.01, loader=0.4, host=0.05)


def run_of(shares: list[StepShares], machine: Snapshot, *, step_ms: float = 82.1) -> Run:
    """One rank for each of these, on a board of its own."""
    ranks = tuple(_rank(number, own, step_ms) for number, own in enumerate(shares))
    mean = {name: sum(getattr(own, name) for own in shares) / len(shares) for name in StepShares.__struct_fields__}
    return Run(
        started_at="2026-12-01T12:00:00+00:00",
        command=("torchrun", f"--nproc-per-node={len(shares)}", "train.py", "--lr", "1e-3"),
        world_size=len(shares),
        ranks=ranks,
        steps=5,
        step_ms=step_ms,
        shares=StepShares(**mean),
        samples_per_s=195 * len(shares),
        tokens_per_s=12_480 * len(shares),
        exit_code=0,
        ended_by_us=True,
        arrivals=tuple(
            Arrival(
                rank=number, matched=60, contested=50, last=45 if own is LATE else 1, wait_ms=own.communication * 70
            )
            for number, own in enumerate(shares)
        ),
        links=(
            Link(
                group="0",
                ranks=tuple(range(len(shares))),
                name="allreduce",
                count=60,
                bytes=60 * 25 * 2**20,
                transfer_ms=4.2,
                bus_bandwidth_gb_s=361.4,
                large_count=60,
            ),
        ),
        paces=tuple(
            Pace(rank=number, slowdown=1.0 + number / 100, alike=1.0, work=1.0, kernels=1.0)
            for number in range(len(shares))
        ),
        watch=_watch(len(shares)),
        machine=machine,
    )


def loader_finding(where: str = "rank 3") -> Finding:
    """The rank's loader holds it back."""
    return Finding(
        code="DAT001",
        name="dataloader-starvation",
        severity=Severity.WARNING,
        confidence="certain",
        where=where,
        evidence=(
            Evidence(
                what="share of the step in which the GPU waits for the loader",
                seen="40 %",
                wanted="below 10 %",
                source="share of the step",
            ),
        ),
        why="the GPU idles until a batch is there",
        fix=(Fix("at train.py:88 make batches in more processes", "DataLoader(..., num_workers=6, pin_memory=True)"),),
        cost=Cost(share_of_step=0.4, step_ms_now=82.1, step_ms_at_best=60.0),
        consequences=("COM002",),
    )


def hang_finding() -> Finding:
    """The job stood still."""
    return Finding(
        code="RUN003",
        name="no-progress",
        severity=Severity.ERROR,
        confidence="certain",
        where="",
        evidence=(Evidence(what="time without a step", seen="60 s", wanted="less than 60 s"),),
        why="a job that stands still costs what a job that runs costs",
        fix=(Fix("look at the rank that stands elsewhere than the others"),),
    )


def failed(run: Run) -> Run:
    """The same job, killed."""
    error = 'Traceback (most recent call last):\n  File "train.py", line 71, in main\nboom <b> `x`'
    return msgspec.structs.replace(run, exit_code=137, ended_by_us=False, error_text=error)


def hung(run: Run) -> Run:
    """The same job, where all ranks wait for rank 2."""
    waiting = "all_reduce (distributed_c10d.py:2501)\nbackward (train.py:71)\nmain (train.py:102)"
    stacks = {f"rank {number}": waiting for number in range(len(run.ranks))}
    stacks["rank 2"] = "save (checkpoint.py:14)\nmain (train.py:99)"
    return msgspec.structs.replace(run, exit_code=143, stalled_s=60.0, stacks=stacks)


def _rank(number: int, shares: StepShares, step_ms: float) -> Rank:
    length = round(step_ms * MS)
    start = 500 * MS + number * MS // 5
    segments, at = [], start
    for name in ("loader", "compute", "copies", "communication", "sync", "launch", "host"):
        if duration := round(getattr(shares, name) * length):
            segments.append(Segment(kind=name, start_ns=at, duration_ns=duration))
            at += duration
    waits = segments[0]
    return Rank(
        rank=number,
        local_rank=number,
        host="node1",
        pid=4000 + number,
        trace=f"trace-{4000 + number}.json",
        device="NVIDIA H100 80GB HBM3",
        device_index=number,
        world_size=8,
        backend="nccl",
        steps=5,
        step_ms=step_ms,
        shares=shares,
        clock_base_ns=1_700_000_000_000_000_000,
        clock_ahead_ns=0,
        window_ns=(100 * MS, 100 * MS + 5 * length),
        kernels=KernelStats(count=900, groups=(KernelGroup(name="gemm", count=9),)),
        collectives=(
            Collectives(group="0", names=("allreduce",), name=(0,), step=(1,), start_ns=(5,), duration_ns=(6,)),
        ),
        gaps=(
            Gap(
                start_ns=waits.start_ns,
                duration_ns=waits.duration_ns,
                cause="loader",
                during="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                after="Optimizer.step#AdamW.step",
            ),
        ),
        timeline=tuple(segments),
        job=_job(step_ms),
    )


def _job(step_ms: float) -> Job:
    return Job(
        torch="2.11.0+cu130",
        script="/home/ada/train.py",
        loop="optimizer",
        steps_seen=40,
        timed_steps=20,
        timed_step_ms=step_ms,
        step_times_ms=(step_ms,) * 20,
        losses=(2.0, 1.0),
        loaders=(
            LoaderSetup(
                workers=2,
                batch_size=16,
                pin_memory=True,
                dataset="Images",
                created_at="/home/ada/train.py:88",
                batch_ms=61.0,
                wait_ms=18.0,
            ),
        ),
        optimizers=(OptimizerSetup(name="AdamW", fused=True, parameters=148, state_bytes=GIB),),
        parallel=ParallelSetup(kind="ddp", backend="nccl", bucket_sizes_bytes=(25 * 2**20, 20 * 2**20)),
        precision=PrecisionSetup(parameters="float32", autocast="bfloat16", matmul_precision="high"),
        memory=MemoryUse(allocated_peak_bytes=40 * GIB, reserved_peak_bytes=44 * GIB),
        pauses=(Pause(kind="gc", count=3, total_ms=12.0, longest_ms=6.0),),
        syncs=(SyncPlace(where="/home/ada/train.py:70", count=2, operator="aten::item"),),
    )


def _watch(boards: int) -> Watch:
    at_s = tuple(0.25 * sample for sample in range(80))
    return Watch(
        at_s=at_s,
        gpus=tuple(
            WatchedGpu(
                index=index,
                uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
                name="NVIDIA H100 80GB HBM3",
                memory_total_bytes=80 * GIB,
                memory_used_bytes=tuple(
                    None if sample == 40 and index == 1 else round(min(sample / 20, 1) * (44 + index) * GIB)
                    for sample in range(80)
                ),
                utilization_ratio=tuple(0.0 if sample < 15 else 0.7 + 0.02 * (sample % 5) for sample in range(80)),
                power_w=(70.0, 500.0),
                holders=(Holder(pid=4000 + index, rank=index, peak_bytes=44 * GIB),),
            )
            for index in range(boards)
        ),
    )
