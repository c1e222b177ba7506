"""How a job was set up, how it ended, and what of it could not be read: in words that every format shows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.facts.job import Job, LoaderSetup, MemoryUse, OptimizerSetup, ParallelSetup, PrecisionSetup
from gpudoctor.reports.document import NotRead
from gpudoctor.reports.figures import count, milliseconds, seconds
from gpudoctor.reports.grouping import places
from gpudoctor.rules.sizes import size
from gpudoctor.run import Run


@dataclass(frozen=True)
class Ending:
    """What to say first of a job that did not end well."""

    text: str
    error: str
    """What the job wrote last; may be empty."""
    stacks: tuple[tuple[str, str], ...]
    """Each different stack once, behind the ranks that stood there."""


def ending(run: Run) -> Ending | None:
    """None for a job that ended well, or that was not run by gpudoctor."""
    if run.stalled_s is not None:
        text = f"the job hung: no step for {seconds(run.stalled_s)}"
    elif run.exit_code:
        text = f"the job failed: {_exit(run.exit_code)}"
    else:
        return None
    return Ending(text, (run.error_text or "").strip("\n"), stacks(run))


def stacks(run: Run) -> tuple[tuple[str, str], ...]:
    """`rank 0, 1, 3` and the stack they share, the smallest group first: who stands elsewhere is who is waited for."""
    shared: dict[str, list[str]] = {}
    for where, text in run.stacks.items():
        shared.setdefault(text.strip("\n"), []).append(where)
    groups = sorted(shared.items(), key=lambda group: len(group[1]))
    return tuple((places(wheres), text) for text, wheres in groups)


def not_read(run: Run) -> tuple[NotRead, ...]:
    """Ranks of which nothing is known, traces that are damaged or unread, and faults of the agent."""
    told = [*run.missing.items(), *run.unread.items()]
    for rank in run.ranks:
        if rank.damage:
            told.append((f"trace of rank {rank.rank}", rank.damage))
        elif rank.shares is None:
            told.append((f"steps of rank {rank.rank}", _untraced(rank.job)))
        if rank.job is not None and rank.job.agent_error:
            told.append((f"agent in rank {rank.rank}", f"it switched itself off: {rank.job.agent_error}"))
    return tuple(NotRead(subject=subject, reason=reason) for subject, reason in told)


def setup(job: Job) -> Iterator[tuple[str, str]]:
    """A title and its facts for each part that the agent saw."""
    if job.script:
        yield "script", f"{job.script}{' · steps told by the ' + job.loop if job.loop else ''}"
    if job.parallel is not None and (text := _parallel(job.parallel)):
        yield "parallel", text
    if job.precision is not None and (text := _precision(job.precision)):
        yield "precision", text
    for optimizer in job.optimizers:
        yield "optimizer", _optimizer(optimizer)
    for loader in job.loaders:
        yield "loader", _loader(loader)
    if job.compiled:
        yield "compile", f"torch.compile{' · ' + count(job.recompiles, 'recompile') if job.recompiles else ''}"
    if job.memory is not None and (text := _memory(job.memory)):
        yield "memory", text
    for pause in job.pauses:
        where = f" · {pause.where}" if pause.where else ""
        longest = f"{milliseconds(pause.longest_ms)} the longest"
        yield f"{pause.kind} pauses", f"{count(pause.count, 'pause')}, {longest}{where}"
    for place in job.syncs:
        yield "waits at", f"{place.where}{f' ({place.operator})' if place.operator else ''} × {place.count}"


def in_a_line(run: Run) -> str:
    """`ddp over nccl · bfloat16 autocast · AdamW · 4 workers`: of the first rank that tells."""
    job = next((rank.job for rank in run.ranks if rank.job is not None), None)
    if job is None:
        return ""
    told = []
    if job.parallel is not None and job.parallel.kind:
        told.append(_kind(job.parallel))
    if job.precision is not None and job.precision.parameters:
        told.append(_numbers(job.precision))
    told += dict.fromkeys(_fused(optimizer) for optimizer in job.optimizers)
    told += dict.fromkeys(_workers(loader) for loader in job.loaders)
    return " · ".join([*told, *["torch.compile"] * bool(job.compiled)])


def _exit(code: int) -> str:
    """A shell tells signal N as 128 + N."""
    try:
        name = signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        name = ""
    return f"exit code {code}{f' ({name})' if name else ''}"


def _untraced(job: Job | None) -> str:
    if job is not None and job.profiler_busy:
        return "the job runs torch.profiler itself, so no trace was taken"
    return "no trace" if job is not None else "no whole step in its trace"


def _kind(parallel: ParallelSetup) -> str:
    return f"{parallel.kind}{f' over {parallel.backend}' if parallel.backend else ''}"


def _parallel(parallel: ParallelSetup) -> str:
    told = [_kind(parallel)] if parallel.kind else []
    if parallel.bucket_sizes_bytes:
        told.append(f"{count(len(parallel.bucket_sizes_bytes), 'bucket')}, {size(sum(parallel.bucket_sizes_bytes))}")
    for name in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view"):
        told += [name] * bool(getattr(parallel, name))
    told += [f"ZeRO stage {parallel.zero_stage}"] * (parallel.zero_stage is not None)
    return " · ".join([*told, *[parallel.sharding or ""] * bool(parallel.sharding)])


def _numbers(precision: PrecisionSetup) -> str:
    return f"{precision.autocast} autocast" if precision.autocast else f"{precision.parameters}"


def _precision(precision: PrecisionSetup) -> str:
    told = [f"parameters {precision.parameters}"] if precision.parameters else []
    told.append(f"autocast {precision.autocast}" if precision.autocast else "no autocast")
    told += ["GradScaler"] * bool(precision.scaler)
    return " · ".join([*told, *[f"float32 matmul {precision.matmul_precision}"] * bool(precision.matmul_precision)])


def _fused(optimizer: OptimizerSetup) -> str:
    return f"{'fused ' * bool(optimizer.fused)}{optimizer.name}"


def _optimizer(optimizer: OptimizerSetup) -> str:
    told = [_fused(optimizer)]
    if optimizer.parameters is not None:
        told.append(count(optimizer.parameters, "parameter tensor"))
    return " · ".join([*told, *[f"state {size(optimizer.state_bytes or 0)}"] * bool(optimizer.state_bytes)])


def _workers(loader: LoaderSetup) -> str:
    return "a loader" if loader.workers is None else count(loader.workers, "worker") if loader.workers else "no workers"


def _loader(loader: LoaderSetup) -> str:
    told = [loader.dataset or "", _workers(loader)]
    if loader.batch_size:
        told.append(f"batch {loader.batch_size}")
    told += ["pinned"] * bool(loader.pin_memory) + ["persistent workers"] * bool(loader.persistent_workers)
    if loader.batch_ms is not None:
        told.append(f"{milliseconds(loader.batch_ms)} to make a batch")
    if loader.wait_ms is not None:
        told.append(f"{milliseconds(loader.wait_ms)} waited for one")
    return " · ".join(text for text in (*told, loader.created_at) if text)


def _memory(memory: MemoryUse) -> str:
    told = []
    if memory.allocated_peak_bytes is not None:
        told.append(f"peak {size(memory.allocated_peak_bytes)}")
    if memory.reserved_peak_bytes is not None:
        told.append(f"{size(memory.reserved_peak_bytes)} reserved")
    parts = ((name, getattr(memory, f"{name}_bytes")) for name in ("parameters", "gradients", "optimizer"))
    told += [f"{name} {size(amount)}" for name, amount in parts if amount]
    told += [count(memory.retries or 0, "allocator retry", "allocator retries")] * bool(memory.retries)
    return " · ".join(told)
