"""What one rank's trace and one job's ranks together tell: where the steps' time went.

Times are in nanoseconds of the trace's own clock unless the name says otherwise; counts and durations are of the window
(whole steps only, see `Rank.window_ns`), so a figure a step is the figure divided by `Rank.steps`.
"""

from __future__ import annotations

from gpudoctor.facts.base import Fact
from gpudoctor.facts.job import Job


class StepShares(Fact, frozen=True, kw_only=True, omit_defaults=False):
    """Where a step's time goes: each moment counts once, in this order of precedence. They sum to 1.

    All seven are written, since a share of 0 is an answer.
    """

    compute: float = 0.0
    """A kernel that is no collective runs, or a memset. On a CPU job: an operator runs."""
    communication: float = 0.0
    """A collective runs and no compute: communication that nothing hides."""
    copies: float = 0.0
    """A copy runs and none of the above."""
    loader: float = 0.0
    """The device idles while the iterating thread is inside the loader's `__next__`."""
    sync: float = 0.0
    """The device idles while a launching thread is blocked in a synchronising call."""
    launch: float = 0.0
    """The device idles while a launching thread is inside an operator or a launch call."""
    host: float = 0.0
    """The device idles for any other reason: Python, logging, checkpoints, garbage collection."""

    @property
    def idle(self) -> float:
        """Share of the step in which the device does nothing at all."""
        return self.loader + self.sync + self.launch + self.host

    @property
    def busy(self) -> float:
        """Share of the step in which the device runs anything; never above 1."""
        return self.compute + self.communication + self.copies


class Step(Fact, frozen=True, kw_only=True):
    """One whole step on the device's clock."""

    number: int | None = None
    """N of `ProfilerStep#N`; None where the trace has no steps."""
    start_ns: int
    """End of the step before."""
    end_ns: int
    """End of the last GPU operation the step launched."""

    @property
    def ms(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e6


class KernelGroup(Fact, frozen=True, kw_only=True):
    """All launches of one kernel with one grid, in the window. Collectives are not among them."""

    name: str
    """As in the trace, cut to 160 characters. On a CPU job: the operator's name."""
    grid: str = ""
    """`x,y,z` blocks; empty where the trace does not say. The same kernel on more blocks does more work."""
    kind: str = "other"
    """`gemm`, `attention`, `softmax`, `optimizer`, `normalisation`, `layout`, `elementwise` or `other`; `operator` on
    a CPU job."""
    tensor_cores: bool | None = None
    """Of a gemm: it runs on tensor cores, as its name tells; None where the name does not tell."""
    count: int = 0
    duration_ns: int = 0
    """Of all launches together."""
    median_ns: int = 0
    """Of one launch."""


class KernelStats(Fact, frozen=True, kw_only=True):
    """The kernels of the window. Collectives are counted apart (`Rank.collectives`)."""

    count: int = 0
    duration_ns: int = 0
    """Sum over kernels, overlap counted twice."""
    median_ns: int | None = None
    """Of one kernel; None where there is none."""
    gemm_ns: int = 0
    tensor_core_gemm_ns: int = 0
    plain_gemm_ns: int = 0
    """Gemms whose name says that they run on the ordinary float32 (or float64) units."""
    tf32_gemm_ns: int = 0
    unaligned_gemm_ns: int = 0
    """Gemms whose name says that a dimension is no multiple of what the fast path wants (`align1`, `align2`)."""
    attention_ns: int = 0
    """Fused attention: flash, memory-efficient, cuDNN."""
    softmax_ns: int = 0
    """Softmax kernels on their own, which is what unfused attention (and a plain loss) runs."""
    softmax_count: int = 0
    optimizer_ns: int = 0
    """Kernels launched inside `Optimizer.step`."""
    optimizer_count: int = 0
    optimizer_fused_count: int = 0
    """Of these, fused ones (`Fused…MathFunctor`, apex, DeepSpeed)."""
    optimizer_foreach_count: int = 0
    """Of these, `multi_tensor_apply` ones that are not fused."""
    layout_ns: int = 0
    """Conversions between NCHW and NHWC."""
    memset_count: int = 0
    groups: tuple[KernelGroup, ...] = ()
    """The dearest by duration, at most 200."""
    groups_left_out: int = 0
    """Groups that did not fit in `groups`."""


class CopyStats(Fact, frozen=True, kw_only=True):
    """All copies of one direction and one pair of memories, in the window."""

    direction: str
    """`HtoD`, `DtoH`, `DtoD` or `PtoP`."""
    source: str | None = None
    """`Pageable`, `Pinned`, `Device`, as the trace names it."""
    target: str | None = None
    count: int = 0
    duration_ns: int = 0
    exposed_ns: int = 0
    """Of it, time in which neither compute nor a collective ran."""
    bytes: int | None = None
    """None where the trace has no sizes."""

    @property
    def pageable(self) -> bool:
        """From or to memory that is not pinned."""
        return "Pageable" in (self.source, self.target)


class Collectives(Fact, frozen=True, kw_only=True):
    """The collectives of one process group on one rank, as columns of the same length, in order of their start.

    All columns hold only collectives of whole steps; `step` and the order inside it say which is which on other ranks.
    """

    group: str
    """The group's name in the trace, such as `0`; `default` where the trace names none."""
    backend: str | None = None
    """`nccl`, `gloo`, `rccl`, …"""
    ranks: tuple[int, ...] | None = None
    """Global ranks of the group; None where the trace does not say."""
    size: int | None = None
    names: tuple[str, ...] = ()
    """Operations that occur, such as `allreduce`, `allgather`, `reducescatter`, `broadcast`, `send`, `recv`."""
    name: tuple[int, ...] = ()
    """Index into `names`."""
    step: tuple[int, ...] = ()
    """Number of the step that launched it; -1 for none."""
    start_ns: tuple[int, ...] = ()
    duration_ns: tuple[int, ...] = ()
    exposed_ns: tuple[int, ...] = ()
    """Of it, time in which no compute ran."""
    bytes: tuple[int | None, ...] = ()
    """Of the larger of input and output; None where the trace does not say."""
    before_ns: dict[str, tuple[int, ...]] = {}
    """By share (`compute`, `host`, …; those that occur): what the rank did from the end of the group's previous
    collective to the start of this one."""
    left_out: int = 0
    """Collectives that did not fit in the columns (at most 10,000 a group)."""


class SyncCall(Fact, frozen=True, kw_only=True):
    """All calls of one kind that made a launching thread wait for the device, in the window."""

    name: str
    """Operator the call stands in, such as `aten::_local_scalar_dense` (what `.item()` runs); else the call itself."""
    call: str
    """The CUDA call that blocks: `cudaStreamSynchronize`, `cudaMemcpyAsync`, …"""
    count: int = 0
    blocked_ns: int = 0
    """Time the thread stood in the call, whether the device was busy or not."""
    idle_ns: int = 0
    """What the calls cost: device idle time in the gaps that open under or right after such a call, as far as the
    thread is blocked or launching again (parts of the shares `sync` and `launch`)."""


class Allocations(Fact, frozen=True, kw_only=True):
    """Calls to the driver's allocator, in the window. PyTorch's own cache makes none in a steady state."""

    malloc_count: int = 0
    malloc_ns: int = 0
    free_count: int = 0
    free_ns: int = 0
    pinned_count: int = 0
    """cudaHostAlloc and kin."""
    pinned_ns: int = 0


class LaunchStats(Fact, frozen=True, kw_only=True):
    """How the host feeds the device, in the window."""

    count: int = 0
    """Launch calls of kernels."""
    duration_ns: int = 0
    median_ns: int | None = None
    """Of one call."""
    median_delay_ns: int | None = None
    """From a launch call's start to its kernel's: tens of microseconds where the device waits for the host,
    milliseconds where the host is ahead."""
    graph_count: int = 0
    """Of `count`, launches of whole CUDA graphs."""


class LoaderStats(Fact, frozen=True, kw_only=True):
    """The loader's `__next__` as the trace saw it, in the window."""

    kind: str | None = None
    """`_SingleProcessDataLoaderIter` (no workers) or `_MultiProcessingDataLoaderIter`."""
    count: int = 0
    """Batches fetched."""
    duration_ns: int = 0
    """Time inside it, whether the device was busy or not."""
    longest_ns: int = 0


class Gap(Fact, frozen=True, kw_only=True):
    """One stretch of device idle time."""

    start_ns: int
    duration_ns: int
    cause: str
    """`loader`, `sync`, `launch` or `host`: what most of it is."""
    during: str | None = None
    """Operator, call, annotation or Python frame that covers most of it on a launching or iterating thread; None where
    none covers half of it."""
    after: str | None = None
    """What ended last before the main part of it began: `Optimizer.step#AdamW.step`, `aten::_local_scalar_dense`."""


class Segment(Fact, frozen=True, kw_only=True):
    """One piece of the timeline of one step."""

    kind: str
    """Name of the share it counts to: `compute`, `communication`, `copies`, `loader`, `sync`, `launch`, `host`."""
    start_ns: int
    duration_ns: int


class Rank(Fact, frozen=True, kw_only=True):
    """One rank: its trace reduced to kilobytes, and what the agent in its process recorded."""

    rank: int
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    trace: str | None = None
    """Name of the trace file."""
    device: str | None = None
    """Model, such as `NVIDIA H200`; `cpu` for a job without GPU; None where the trace does not say."""
    device_index: int | None = None
    """Index in the process, after CUDA_VISIBLE_DEVICES."""
    device_memory_bytes: int | None = None
    compute_capability: str | None = None
    """`major.minor`."""
    world_size: int | None = None
    backend: str | None = None
    """Of the default process group as the trace's header tells: `nccl`, `gloo`, …"""
    nccl_version: str | None = None

    steps: int | None = None
    """Whole steps in the window; None where the trace has no step marks, and then the window is its whole span."""
    step_ms: float | None = None
    """Mean length of a step: on the device's clock, or of the steps timed without a profiler where the agent did."""
    traced_step_ms: float | None = None
    """What the trace alone says, where `step_ms` is the timed one: the profiler slows the host."""
    shares: StepShares | None = None
    """None where nothing could be measured."""
    clock_base_ns: int | None = None
    """Add it to a time of this rank for nanoseconds since 1970 by the host's clock; None in old traces."""
    clock_ahead_ns: int | None = None
    """How far this rank's clock is ahead of the first rank's, told from the ends of collectives they share; None where
    they share none. Taken from its times, it lays ranks of several hosts on one axis."""
    window_ns: tuple[int, int] | None = None
    """Start and end of the window."""
    each_step: tuple[Step, ...] = ()
    busy_ns: int | None = None
    """Device time of the window in which anything ran, overlap counted once."""
    communication_ns: int | None = None
    """Time in which a collective ran, hidden by compute or not, overlap counted once."""
    hidden_communication_ns: int | None = None
    """Of it, time in which compute ran too."""

    kernels: KernelStats | None = None
    copies: tuple[CopyStats, ...] = ()
    collectives: tuple[Collectives, ...] = ()
    syncs: tuple[SyncCall, ...] = ()
    """Dearest first."""
    allocations: Allocations | None = None
    launches: LaunchStats | None = None
    loader: LoaderStats | None = None
    """None where the trace marks no fetch."""
    optimizer_steps: int | None = None
    """`Optimizer.step` annotations in the window's steps; None where there is none."""
    forwards: int | None = None
    """Forward passes through DistributedDataParallel in the window; None where the trace marks none. More than
    one an optimizer step means gradient accumulation."""
    gaps: tuple[Gap, ...] = ()
    """The longest stretches of idle time, at most 50."""
    timeline: tuple[Segment, ...] = ()
    """One step in the middle of the window, small pieces merged (at most 600)."""
    memory_peak_bytes: int | None = None
    """From the trace's memory counters, where it was taken with profile_memory."""

    events: int | None = None
    """Events read."""
    damage: str | None = None
    """What of the trace could not be read, such as `cut off after 81 % of the file`; None where it was whole."""
    job: Job | None = None
    """What the agent recorded; None for a trace of unknown origin."""


class Arrival(Fact, frozen=True, kw_only=True):
    """How one rank meets the others at their collectives. Times are milliseconds a step."""

    rank: int
    matched: int = 0
    """Collectives compared: those that every member of a group recorded."""
    contested: int = 0
    """Of these, collectives at which the others waited for whoever came last, by more than jitter. Where several
    follow each other without a break only the first is: the others find everybody there."""
    last: int = 0
    """Of the contested ones, those at which this rank arrived last."""
    wait_ms: float = 0.0
    """Time it waits in collectives for others."""
    exposed_wait_ms: float = 0.0
    """Of it, at most this much was not hidden by compute of its own."""
    caused_ms: float = 0.0
    """Time the other members wait for it, mean over them, in collectives at which it arrived last."""
    extra_ms: dict[str, float] = {}
    """By share (`compute`, `host`, `loader`, …): what it spent before the collectives at which it arrived last beyond
    the median of the group. The largest is what it was doing while the others waited."""


class Link(Fact, frozen=True, kw_only=True):
    """What one process group's collectives of one kind moved, and how fast."""

    group: str
    ranks: tuple[int, ...] = ()
    name: str
    """`allreduce`, …"""
    count: int = 0
    bytes: int | None = None
    """Of all of them together; None where the trace has no sizes."""
    transfer_ms: float = 0.0
    """A step: the part of the collectives that is no waiting."""
    bus_bandwidth_gb_s: float | None = None
    """Bytes × the operation's factor ÷ transfer time, of the large ones alone where there are any: comparable with the
    bus bandwidth nccl-tests print."""
    large_count: int = 0
    """Collectives of at least 4 MiB among them, which `bus_bandwidth_gb_s` is then taken from."""


class Pace(Fact, frozen=True, kw_only=True):
    """One rank's kernels beside the other ranks'. Communication is left out."""

    rank: int
    slowdown: float | None = None
    """Duration of its kernels over the median rank's, the same kernels on the same grids, median over kernels;
    1.3 is a GPU that takes 30 % longer. None where it shares too few kernels with the others (see `alike`)."""
    alike: float = 0.0
    """Share of its kernel launches, 0 to 1, that most ranks run on the same grids. Below 0.7 it does other work than
    they do, and kernels that keep their grid whatever the size would make it pass for a slow GPU."""
    work: float | None = None
    """Its kernels' work over the median rank's, at one common speed: 1.5 is a rank with half as much again to do."""
    kernels: float | None = None
    """Number of its kernels over the median rank's."""
    excess_ms: float = 0.0
    """Milliseconds a step that its kernels take beyond the median rank's, whatever the reason. Of an even number of
    ranks the median is the lower of the middle two, so that of two ranks the quicker is the measure."""
