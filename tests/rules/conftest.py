"""Runs the tests of rules share."""

import msgspec
import pytest

from gpudoctor.facts.job import (
    Job,
    LoaderSetup,
    MemoryUse,
    OptimizerSetup,
    ParallelSetup,
    Pause,
    PrecisionSetup,
)
from gpudoctor.facts.run import (
    Allocations,
    Arrival,
    Collectives,
    CopyStats,
    Gap,
    KernelGroup,
    KernelStats,
    LaunchStats,
    Link,
    LoaderStats,
    Pace,
    Rank,
    Step,
    StepShares,
    SyncCall,
)
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

GIB = 2**30
STEP_NS = 100_000_000
STEPS = 4


@pytest.fixture
def healthy_run(healthy: Snapshot) -> Run:
    """DDP on 8 × H100, 100 ms a step, 96 % of it compute: every rule must be silent."""
    return Run(
        started_at="2026-12-01T12:00:00+00:00",
        command=("torchrun", "--nproc-per-node", "8", "train.py"),
        world_size=8,
        ranks=tuple(_rank(number) for number in range(8)),
        steps=STEPS,
        step_ms=100.0,
        shares=_SHARES,
        samples_per_s=2560.0,
        exit_code=0,
        ended_by_us=True,
        arrivals=tuple(
            Arrival(rank=number, matched=20, contested=8, last=1, wait_ms=0.2, exposed_wait_ms=0.1, caused_ms=0.2)
            for number in range(8)
        ),
        links=(
            Link(
                group="0",
                ranks=tuple(range(8)),
                name="allreduce",
                count=20,
                bytes=20 * 25 * 2**20,
                transfer_ms=5.0,
                bus_bandwidth_gb_s=180.0,
                large_count=20,
            ),
        ),
        paces=tuple(
            Pace(rank=number, slowdown=1.01, alike=1.0, work=1.0, kernels=1.0, excess_ms=0.5) for number in range(8)
        ),
        watch=Watch(at_s=(1.0, 2.0), gpus=tuple(_board(number) for number in range(8))),
        machine=healthy,
    )


_SHARES = StepShares(compute=0.96, communication=0.02, loader=0.002, sync=0.002, launch=0.01, host=0.006)


def _rank(number: int) -> Rank:
    return Rank(
        rank=number,
        local_rank=number,
        host="node1",
        pid=1000 + number,
        trace=f"trace-{1000 + number}.json",
        device="NVIDIA H100 80GB HBM3",
        device_index=number,
        device_memory_bytes=80 * GIB,
        compute_capability="9.0",
        world_size=8,
        backend="nccl",
        nccl_version="2.28.9",
        steps=STEPS,
        step_ms=100.0,
        shares=_SHARES,
        clock_base_ns=0,
        window_ns=(0, STEPS * STEP_NS),
        each_step=tuple(Step(number=n, start_ns=n * STEP_NS, end_ns=(n + 1) * STEP_NS) for n in range(STEPS)),
        busy_ns=392_000_000,
        communication_ns=40_000_000,
        hidden_communication_ns=32_000_000,
        kernels=KernelStats(
            count=4000,
            duration_ns=384_000_000,
            median_ns=50_000,
            gemm_ns=250_000_000,
            tensor_core_gemm_ns=250_000_000,
            attention_ns=40_000_000,
            softmax_ns=8_000_000,
            softmax_count=8,
            optimizer_ns=4_000_000,
            optimizer_count=40,
            optimizer_fused_count=36,
            groups=(
                KernelGroup(
                    name="nvjet_sm90_tst_256x128", kind="gemm", tensor_cores=True, count=400, duration_ns=250_000_000
                ),
                KernelGroup(name="softmax_warp_forward", kind="softmax", count=8, duration_ns=8_000_000),
            ),
        ),
        copies=(
            CopyStats(direction="HtoD", source="Pinned", target="Device", count=8, duration_ns=400_000, bytes=2**20),
        ),
        collectives=(_buckets(5),),
        syncs=(
            SyncCall(name="aten::_local_scalar_dense", call="cudaStreamSynchronize", count=4, blocked_ns=80_000_000),
        ),
        allocations=Allocations(),
        launches=LaunchStats(count=4000, duration_ns=30_000_000, median_ns=7000, median_delay_ns=20_000_000),
        loader=LoaderStats(kind="_MultiProcessingDataLoaderIter", count=4, duration_ns=800_000, longest_ns=300_000),
        optimizer_steps=4,
        forwards=4,
        gaps=(Gap(start_ns=0, duration_ns=200_000, cause="host"),),
        events=40_000,
        job=_job(),
    )


def _buckets(count: int) -> Collectives:
    """All-reduces of 25 MiB at the end of each step."""
    starts = [step * STEP_NS + 60_000_000 + at * 5_000_000 for step in range(STEPS) for at in range(count)]
    return Collectives(
        group="0",
        backend="nccl",
        ranks=tuple(range(8)),
        size=8,
        names=("allreduce",),
        name=(0,) * len(starts),
        step=tuple(step for step in range(STEPS) for _ in range(count)),
        start_ns=tuple(starts),
        duration_ns=(2_000_000,) * len(starts),
        exposed_ns=(400_000,) * len(starts),
        bytes=(25 * 2**20,) * len(starts),
    )


def _job() -> Job:
    return Job(
        torch="2.11.0+cu130",
        script="train.py",
        loop="optimizer",
        steps_seen=40,
        timed_steps=20,
        timed_step_ms=99.0,
        step_times_ms=tuple(99.0 + (at * 7 % 5) / 10 for at in range(90)),
        accumulation=1.0,
        samples_per_step=32.0,
        compiled=False,
        loaders=(
            LoaderSetup(
                workers=4,
                batch_size=32,
                pin_memory=True,
                persistent_workers=True,
                prefetch_factor=2,
                dataset="Text",
                created_at="train.py:31",
                batches=44,
                epochs=1,
                batch_ms=60.0,
                batch_cpu_ms=55.0,
                batch_read_bytes=2**20,
                wait_ms=0.1,
                start_ms=300.0,
            ),
        ),
        optimizers=(OptimizerSetup(name="AdamW", fused=True, parameters=150, steps_per_step=1.0),),
        parallel=ParallelSetup(
            kind="ddp",
            backend="nccl",
            bucket_cap_bytes=25 * 2**20,
            bucket_sizes_bytes=(25 * 2**20,) * 5,
            find_unused_parameters=False,
            unused_parameters=0,
        ),
        precision=PrecisionSetup(
            parameters="float32", autocast="bfloat16", scaler=False, matmul_precision="high", cudnn_allow_tf32=True
        ),
        memory=MemoryUse(
            allocated_peak_bytes=60 * GIB,
            reserved_peak_bytes=66 * GIB,
            total_bytes=80 * GIB,
            retries=0,
            ooms=0,
            parameters_bytes=GIB,
            gradients_bytes=GIB,
            optimizer_bytes=2 * GIB,
        ),
        pauses=(Pause(kind="gc", count=2, total_ms=10.0, longest_ms=6.0, per_step_ms=0.3),),
        empty_cache_calls=0,
    )


def _board(number: int) -> WatchedGpu:
    return WatchedGpu(
        index=number,
        name="NVIDIA H100 80GB HBM3",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=(66 * GIB, 67 * GIB),
        utilization_ratio=(0.99, 1.0),
        clock_sm_mhz=(1900, 1905),
        power_w=(600.0, 610.0),
        holders=(
            Holder(pid=1000 + number, rank=number, peak_bytes=67 * GIB),
            *(Holder(pid=1000 + peer, rank=peer, peak_bytes=0) for peer in range(8) if peer != number),
        ),
    )


def change(run: Run, **fields: object) -> Run:
    """The run with these fields of every rank replaced."""
    return msgspec.structs.replace(run, ranks=tuple(msgspec.structs.replace(rank, **fields) for rank in run.ranks))
