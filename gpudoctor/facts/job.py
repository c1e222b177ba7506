"""How a training process was set up, and what the agent inside it recorded outside the trace."""

from __future__ import annotations

from gpudoctor.facts.base import Fact


class LoaderSetup(Fact, frozen=True, kw_only=True):
    """One DataLoader the job iterates."""

    workers: int | None = None
    batch_size: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    iterable: bool | None = None
    """Over an IterableDataset."""
    dataset: str | None = None
    """Class name."""
    sampler: str | None = None
    """Class name."""
    created_at: str | None = None
    """`file:line` of the job that made it."""
    batches: int = 0
    """Fetched over the run."""
    epochs: int = 0
    """Times its iteration was started."""
    batch_ms: float | None = None
    """What one batch costs where it is made (worker or main process): median wall time."""
    batch_cpu_ms: float | None = None
    """CPU time of the same; far below `batch_ms` where it waits for reads."""
    batch_read_bytes: int | None = None
    """Bytes one batch reads from files."""
    batch_memory_bytes: int | None = None
    """Size of one batch."""
    wait_ms: float | None = None
    """Time the loop waits for one batch: median, outside the trace."""
    start_ms: float | None = None
    """From the start of an iteration to its first batch: median."""


class OptimizerSetup(Fact, frozen=True, kw_only=True):
    """One optimizer that steps."""

    name: str
    """Class name."""
    fused: bool | None = None
    foreach: bool | None = None
    """None is torch's own choice (foreach on GPUs)."""
    capturable: bool | None = None
    parameters: int | None = None
    """Tensors."""
    steps_per_step: float | None = None
    """Its steps in one training step."""
    state_bytes: int | None = None


class ParallelSetup(Fact, frozen=True, kw_only=True):
    """How the model is spread."""

    kind: str | None = None
    """`ddp`, `fsdp`, `fsdp2`, `deepspeed`, `data_parallel` or None for one device."""
    backend: str | None = None
    bucket_cap_bytes: int | None = None
    bucket_sizes_bytes: tuple[int, ...] = ()
    """Of DDP after its rebuild."""
    find_unused_parameters: bool | None = None
    unused_parameters: int | None = None
    """Parameters that got no gradient, where DDP counted them."""
    static_graph: bool | None = None
    gradient_as_bucket_view: bool | None = None
    zero_stage: int | None = None
    sharding: str | None = None
    """FSDP's strategy."""


class PrecisionSetup(Fact, frozen=True, kw_only=True):
    """Numbers the job computes with."""

    parameters: str | None = None
    """Type most parameters have: `float32`, `bfloat16`, …"""
    autocast: str | None = None
    """Type of the autocast regions seen; None where none was."""
    scaler: bool | None = None
    """A GradScaler is used."""
    matmul_precision: str | None = None
    """`highest`, `high` or `medium`."""
    cudnn_benchmark: bool | None = None
    cudnn_allow_tf32: bool | None = None


class Pause(Fact, frozen=True, kw_only=True):
    """All pauses of one kind after the warm-up, whether a trace was taken meanwhile or not."""

    kind: str
    """`gc` (outside of the trace), `save` (torch.save and kin), `compile` (torch.compile), `evaluation`, `workers` (the
    loader's are started at the beginning of an epoch)."""
    count: int = 0
    total_ms: float = 0.0
    longest_ms: float = 0.0
    per_step_ms: float | None = None
    where: str | None = None
    """`file:line` of the job, where one place makes most of it."""


class SyncPlace(Fact, frozen=True, kw_only=True):
    """One line of the job that made the host wait for the device, seen in one step."""

    where: str
    """`file:line`."""
    count: int = 1
    operator: str | None = None


class MemoryUse(Fact, frozen=True, kw_only=True):
    """Memory of the rank's device as torch's allocator counts it, at the end of the window."""

    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    total_bytes: int | None = None
    retries: int | None = None
    """cudaMalloc calls repeated after the cache was emptied."""
    ooms: int | None = None
    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None


class Job(Fact, frozen=True, kw_only=True):
    """What the agent recorded in one training process. None and empty: not seen."""

    agent_error: str | None = None
    """A fault of the agent's own, which switched it off."""
    torch: str | None = None
    """Version."""
    script: str | None = None
    loop: str | None = None
    """How steps were recognised: `optimizer`, `loader`, `deepspeed`."""
    steps_seen: int = 0
    """Over the whole run."""
    timed_steps: int = 0
    """Steps of the timing window, without a profiler."""
    timed_step_ms: float | None = None
    """Median of them: the true step time."""
    step_times_ms: tuple[float, ...] = ()
    """Of the steps seen without a profiler, in order, at most 2,000 (evenly thinned): shows drift."""
    cpu_wait_ms: float | None = None
    """A traced step: how long the thread that trains was ready to run while others had the CPU. None where the
    scheduler does not tell."""
    accumulation: float | None = None
    """Batches fetched in one training step."""
    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    profiler_busy: bool = False
    """The job runs torch.profiler itself, so the agent took no trace."""
    compiled: bool | None = None
    """torch.compile is in use."""
    recompiles: int | None = None
    """In the window."""
    cuda_graphs: bool | None = None
    loaders: tuple[LoaderSetup, ...] = ()
    optimizers: tuple[OptimizerSetup, ...] = ()
    parallel: ParallelSetup | None = None
    precision: PrecisionSetup | None = None
    memory: MemoryUse | None = None
    pauses: tuple[Pause, ...] = ()
    syncs: tuple[SyncPlace, ...] = ()
    empty_cache_calls: int | None = None
    """torch.cuda.empty_cache() in the window."""
    losses: tuple[float, ...] = ()
    """Where the job's loss could be seen."""
