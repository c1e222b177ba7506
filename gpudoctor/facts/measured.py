"""What the hardware did when it was made to work (`check --deep`)."""

from __future__ import annotations

from gpudoctor.facts.base import Fact, Subject

# `gpu` is NVML's index of the board, so that figures stand beside what NVML tells of it; where NVML was not to be
# asked it is torch's number of the device. None is the CPU. `spread` is (largest - smallest) / median of the repeats.


class GemmRate(Fact, frozen=True, kw_only=True):
    """Square matrix products in one number format."""

    gpu: int | None = None
    format: str
    """`fp32`, `tf32`, `bf16`, `fp16` or `fp8`."""
    size: int
    """Side of the matrices timed."""
    tflops: float | None = None
    """Median of the repeats."""
    spread: float | None = None
    relative_error: float | None = None
    """Largest difference from the product in float64, over the largest element, at a smaller size; None if infinite or
    not a number, and where it was not compared."""
    bound: float | None = None
    """What `relative_error` may be; None where it was not compared."""
    correct: bool | None = None
    """Within the bound. None where it was not compared."""
    repeatable: bool | None = None
    """Two products of the same matrices agree bit for bit. None on CPUs and ROCm, which do not promise it."""


class MemoryRate(Fact, frozen=True, kw_only=True):
    """A copy inside the memory of one device."""

    gpu: int | None = None
    gb_s: float
    """Bytes read and bytes written, both counted."""
    spread: float | None = None


class HostLinkRate(Fact, frozen=True, kw_only=True):
    """Copies between the host's memory and one GPU."""

    gpu: int
    to_gpu: bool
    """False: from the GPU to the host."""
    pinned: bool
    gb_s: float
    spread: float | None = None


class LaunchLatency(Fact, frozen=True, kw_only=True):
    """One small kernel after another."""

    gpu: int
    us: float
    """From one launch to the next, microseconds."""


class Load(Fact, frozen=True, kw_only=True):
    """What NVML said of a board while it worked."""

    gpu: int
    stage: str
    """`gemm` (clocks, power) or `host_link` (the PCIe link)."""
    pcie_generation: int | None = None
    """The highest seen."""
    pcie_width: int | None = None
    """The highest seen."""
    clock_sm_mhz: int | None = None
    """Median."""
    power_w: float | None = None
    """The highest seen."""
    temperature_c: int | None = None
    """The highest seen."""
    throttle_reasons: tuple[str, ...] | None = None
    """All that were seen, named as in Gpu.throttle_reasons; `gpu_idle` left out."""


class PeerCopy(Fact, frozen=True, kw_only=True):
    """A pattern written from one GPU into another's memory and read back."""

    first: int
    second: int
    gb_s: float | None = None
    intact: bool
    access: bool | None = None
    """torch says that the first can reach the second's memory; else the copy goes through the host."""


class CollectiveRate(Fact, frozen=True, kw_only=True):
    """One collective of torch.distributed over all ranks."""

    op: str
    """`all_reduce`, `all_gather` or `reduce_scatter`."""
    bytes: int
    """Of the whole array, as nccl-tests counts."""
    bus_gb_s: float
    backend: str
    """`nccl` or `gloo`."""
    ranks: int
    correct: bool
    """Every rank got the right numbers."""


class LoaderTrial(Fact, frozen=True, kw_only=True):
    """A DataLoader whose workers pass large batches through shared memory."""

    start_method: str
    """`fork` or `spawn`."""
    sharing: str
    """torch's sharing strategy: `file_descriptor` or `file_system`."""
    batch_bytes: int
    ok: bool
    error: str | None = None
    batches_per_s: float | None = None
    """Of two workers, once they are there."""
    worker_start_s: float | None = None
    """Until the first batch."""


class Feature(Fact, frozen=True, kw_only=True):
    """Something that trainings use, tried once."""

    name: str
    """`convolution`, `attention NAME` (a back end of scaled_dot_product_attention), `compile`, `cuda_graph`."""
    gpu: int | None = None
    ok: bool
    error: str | None = None
    duration_s: float | None = None
    skipped: str | None = None
    """Why it was not tried, in a clause; `ok` then says nothing."""


class StageFailure(Fact, frozen=True, kw_only=True):
    """A stage that raised, died or hung. It cost itself alone."""

    stage: str
    """`devices`, `gemm`, `memory`, `host_link`, `launch`, `features`, `compile`, `loader`, `peer` or `collective`."""
    gpus: tuple[int, ...] = ()
    """Empty on the CPU."""
    error: str | None = None
    """The exception, or the last words on standard error."""
    signal: int | None = None
    """It died by this one."""
    exit_code: int | None = None
    """It ended on its own with this one."""
    timed_out: bool = False
    """It was ended at its deadline."""
    deadline_s: float | None = None
    stack: str | None = None
    """Innermost Python frames where it hung or died."""


class Measured(Subject, frozen=True, kw_only=True):
    """Only `check --deep` reads this. An empty tuple: nothing of the kind was measured.

    `unread` tells of stages left out: GPUs that others use, no time left.
    """

    gemm: tuple[GemmRate, ...] = ()
    memory: tuple[MemoryRate, ...] = ()
    host_links: tuple[HostLinkRate, ...] = ()
    launches: tuple[LaunchLatency, ...] = ()
    loads: tuple[Load, ...] = ()
    peers: tuple[PeerCopy, ...] = ()
    collectives: tuple[CollectiveRate, ...] = ()
    loaders: tuple[LoaderTrial, ...] = ()
    features: tuple[Feature, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    shared: tuple[int, ...] = ()
    """GPUs measured although others use them (--force): their figures say nothing about the boards."""
    duration_s: float | None = None
