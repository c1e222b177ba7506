"""Rules on the loader: batches that come too late, or in a way that costs more than it must."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpudoctor.facts.job import LoaderSetup
from gpudoctor.facts.run import CopyStats, Rank
from gpudoctor.findings import Cost, Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import (
    Loss,
    cpu_wait_share,
    cpus_a_rank,
    lost,
    ms,
    on_gpu,
    on_gpus,
    ranks_on_its_host,
    share_of_window,
)
from gpudoctor.rules.sizes import size
from gpudoctor.run import Run

STARVED, STARVED_BADLY = 0.10, 0.40
LEAST_WAIT_MS = 0.5  # what fetching a ready batch and unpacking it costs on its own
PAGEABLE_SHARE = 0.03
IDLE_SHARE = 0.10
RESTART_SHARE = 0.10
WAITING_SHARE = 0.5
LEAST_READ_BYTES = 1024  # a batch that reads less does not come from files
NO_WORKERS = "_SingleProcessDataLoaderIter"
DATA_GUIDE = "PyTorch documentation, torch.utils.data, Single- and Multi-process Data Loading"
CHEAPER = Fix(
    "make a batch cheaper: decode and resize once and store the result, move augmentation to the GPU, use a faster "
    "decoder"
)


@rule(
    "DAT001",
    "dataloader-starvation",
    Severity.WARNING,
    why="the device stands still until the next batch is there; no change to the model makes the step shorter",
    fix=(Fix("make batches in more workers (num_workers of the DataLoader)"), CHEAPER),
    confirm="time a loop over the loader alone, without the model",
    source=f"{DATA_GUIDE}; 10 % and 40 % of the step are our bounds",
)
def dataloader_starvation(run: Run) -> Iterator[Evidence]:
    """The device idles for at least 10 % of the step (an error from 40 %) while the loop waits for the loader.

    Silent where the wait is below half a millisecond a step, which handing over a ready batch costs anyway, where only
    the first batch of each epoch is waited for (DAT005), and for as long as other processes had the CPU.
    """
    loss = _starved(run)
    if loss is None or _only_at_starts(loss.ranks[0]):
        return
    rank = loss.ranks[0]
    setup, workers = _loader(rank), _workers(rank)
    at_best = loss.cost(_batch_bound_ms(run, rank))
    severity = Severity.ERROR if loss.share >= STARVED_BADLY else Severity.WARNING
    where = loss.where or (setup.created_at if setup and setup.created_at else "")
    fixes = _more_workers(run, rank, loss)
    yield Evidence(
        where=where,
        what="waiting for the loader",
        seen=loss.seen,
        wanted=f"below {STARVED:.0%}",
        severity=severity,
        confidence=loss.confidence,
        cost=at_best,
        fix=fixes,
    )
    if (batch := _batch_ms(rank)) is not None:
        cpu = f" ({ms(setup.batch_cpu_ms)} ms of CPU)" if setup and setup.batch_cpu_ms is not None else ""
        by = "" if workers is None else f", made by {workers or 'no'} worker{'' if workers == 1 else 's'}"
        target = (loss.step_ms or 0.0) - loss.ms
        wanted = f"{ms(target / _fetches(rank))} ms a batch from all workers together" if target else "less"
        yield Evidence(
            where=where,
            what="cost of one batch",
            seen=f"{ms(batch)} ms{cpu}{by}",
            wanted=wanted,
            source="measured here",
            severity=severity,
            confidence=loss.confidence,
        )


def _starved(run: Run) -> Loss | None:
    def share(rank: Rank) -> float | None:
        if rank.shares is None or (rank.step_ms or math.inf) * rank.shares.loader < LEAST_WAIT_MS:
            return None if rank.shares is None else 0.0
        return max(0.0, rank.shares.loader - cpu_wait_share(rank))

    return lost(run.ranks, share, STARVED)


def _loader(rank: Rank) -> LoaderSetup | None:
    """The one it trains from: most batches come from it."""
    loaders = rank.job.loaders if rank.job else ()
    return max(loaders, key=lambda setup: setup.batches, default=None)


def _workers(rank: Rank) -> int | None:
    setup = _loader(rank)
    if setup is not None and setup.workers is not None:
        return setup.workers
    return 0 if rank.loader is not None and rank.loader.kind == NO_WORKERS else None


def _fetches(rank: Rank) -> float:
    """Batches a step; by the trace alone, the fetch that ends an epoch is one too."""
    if rank.job is not None and rank.job.accumulation:
        return max(1.0, rank.job.accumulation)
    return max(1.0, rank.loader.count / rank.steps) if rank.loader is not None and rank.steps else 1.0


def _batch_ms(rank: Rank) -> float | None:
    """What one batch costs where it is made: as the agent saw it, else as long as `next` takes without workers."""
    setup = _loader(rank)
    if setup is not None and setup.batch_ms is not None:
        return setup.batch_ms
    if rank.loader is not None and rank.loader.count and _workers(rank) == 0:
        return rank.loader.duration_ns / 1e6 / rank.loader.count
    return None


def _batch_bound_ms(run: Run, rank: Rank) -> float:
    """No step is shorter than its batches take on all CPUs of the rank; those of a CPU job have the step to do too."""
    cpus, setup, batch = cpus_a_rank(run, rank), _loader(rank), _batch_ms(rank)
    if cpus is None or batch is None:
        return 0.0
    on_cpu = setup.batch_cpu_ms if setup and setup.batch_cpu_ms is not None else batch
    making = on_cpu * _fetches(rank) / max(cpus, 1.0)
    if on_gpu(rank) or rank.shares is None or rank.step_ms is None:
        return making
    return making + (1 - rank.shares.loader) * rank.step_ms


def _more_workers(run: Run, rank: Rank, loss: Loss) -> tuple[Fix, ...]:
    setup, workers, batch = _loader(rank), _workers(rank), _batch_ms(rank)
    target = (loss.step_ms or 0.0) - loss.ms
    place = f" at {setup.created_at}" if setup and setup.created_at else ""
    if target <= 0:
        return ()
    if batch is None:
        times = math.ceil((loss.step_ms or 0.0) / target)
        return Fix(f"start {times} times the workers there are now: num_workers of the DataLoader{place}"), CHEAPER
    wanted = max(1, math.ceil(batch * _fetches(rank) / target))
    limit = _most_workers(run, rank, batch)
    count = wanted if limit is None else min(wanted, limit)
    if workers is not None and count <= workers:
        text = f"give the job more CPUs: {workers} workers already keep the CPUs of this rank busy"
        return CHEAPER, Fix(text, safety="restarts")
    pinned = ", pin_memory=True" if on_gpu(rank) else ""
    line = f"num_workers={count}, persistent_workers=True{pinned}"
    bound = f" ({wanted} would hide a batch, {limit} is what the CPUs allow)" if count < wanted else ""
    split = "; each worker must read its own part of an IterableDataset" if setup and setup.iterable else ""
    return Fix(
        f"make batches in {count} worker{'s' if count > 1 else ''}: pass this to the DataLoader{place}{bound}{split}",
        line,
    ), CHEAPER


def _most_workers(run: Run, rank: Rank, batch_ms: float) -> int | None:
    """One a CPU: where the loader is what takes time, the training process needs little. Those that wait for reads
    share a CPU."""
    cpus, setup = cpus_a_rank(run, rank), _loader(rank)
    if cpus is None:
        return None
    on_cpu = setup.batch_cpu_ms if setup and setup.batch_cpu_ms else batch_ms
    return max(1, int(cpus * max(1.0, min(4.0, batch_ms / on_cpu))))


@rule(
    "DAT002",
    "pageable-copies",
    Severity.WARNING,
    why="the driver stages pageable memory through a small buffer of its own: slower, and the host waits meanwhile",
    fix=Fix("let the loader pin its batches and copy them without waiting: x.to(device, non_blocking=True)"),
    confirm="look for `Memcpy HtoD (Pageable -> Device)` in the trace",
    source="CUDA C++ Best Practices Guide, Pinned Memory; 3 % of the step is our bound",
)
def pageable_copies(run: Run) -> Iterator[Evidence]:
    """Copies from pageable memory to the device take at least 3 % of the step in which nothing else runs.

    Silent where compute hides them, and without a GPU.
    """

    def share(rank: Rank) -> float | None:
        return share_of_window(rank, sum(copy.exposed_ns for copy in _pageable(rank)))

    loss = lost(on_gpus(run), share, PAGEABLE_SHARE)
    if loss is None:
        return
    rank = loss.ranks[0]
    setup = _loader(rank)
    copies = _pageable(rank)
    moved, took = sum(copy.bytes or 0 for copy in copies), sum(copy.duration_ns for copy in copies)
    speed = f", {moved / took:.3g} GB/s" if moved and took else ""
    if setup is not None and setup.pin_memory:
        fix = Fix("the loader pins its batches, so these are others: pin what is copied", "x = x.pin_memory()")
    else:
        place = f" at {setup.created_at}" if setup and setup.created_at else ""
        fix = Fix(
            f"pass this to the DataLoader{place}, and copy with .to(device, non_blocking=True)", "pin_memory=True"
        )
    yield Evidence(
        where=loss.where,
        what="copies from pageable memory that nothing hides",
        seen=f"{loss.seen}{speed}",
        wanted=f"pinned memory, or below {PAGEABLE_SHARE:.0%}",
        confidence=loss.confidence,
        cost=loss.cost(),
        fix=(fix,),
    )


def _pageable(rank: Rank) -> list[CopyStats]:
    return [copy for copy in rank.copies if copy.direction == "HtoD" and copy.source == "Pageable"]


@rule(
    "DAT003",
    "no-workers",
    Severity.WARNING,
    why="the training process makes every batch itself, and launches nothing meanwhile",
    fix=Fix("make batches in other processes", "num_workers=4, persistent_workers=True"),
    confirm="print(loader.num_workers)",
    source=DATA_GUIDE,
)
def no_workers(run: Run) -> Iterator[Evidence]:
    """The loader has no worker processes (num_workers=0) and the device waits for it (DAT001).

    Silent where batches are so cheap that nobody waits.
    """
    loss = _starved(run)
    if loss is None or _workers(loss.ranks[0]) != 0:
        return
    rank = loss.ranks[0]
    setup = _loader(rank)
    yield Evidence(
        where=(setup.created_at if setup else None) or loss.where,
        what="num_workers",
        seen="0",
        wanted="1 or more",
        confidence=loss.confidence,
        cost=loss.cost(_batch_bound_ms(run, rank)),
        fix=_more_workers(run, rank, loss)[:1],
    )


@rule(
    "DAT004",
    "too-many-workers",
    Severity.WARNING,
    why="workers, and the process that launches kernels, take each other's CPUs",
    fix=Fix("start no more workers than there are CPUs"),
    confirm="nproc; print(loader.num_workers)",
    source="torch.utils.data.DataLoader warns of the same; PyTorch documentation, torch.utils.data",
)
def too_many_workers(run: Run) -> Iterator[Evidence]:
    """The loader workers of all ranks on a host are more than the CPUs the job may use.

    An info where the device hardly idles: workers that mostly sleep harm nobody. Silent where batches wait for reads
    rather than for a CPU.
    """
    cpus = run.machine.cpu.usable if run.machine.cpu else None
    asking = [rank for rank in run.ranks if (_workers(rank) or 0) > 0]
    if cpus is None or not asking:
        return
    rank = asking[0]
    setup, workers, ranks = _loader(rank), _workers(rank) or 0, ranks_on_its_host(run, rank)
    if workers * ranks <= cpus or (setup is not None and _waits_for_reads(setup)):
        return
    idle = run.shares.idle if run.shares else 0.0
    yield Evidence(
        where=(setup.created_at if setup else None) or "",
        what="loader workers",
        seen=f"{workers}" + (f" × {ranks} ranks = {workers * ranks}" if ranks > 1 else ""),
        wanted=f"at most {cpus:g}, the CPUs there are",
        severity=Severity.WARNING if idle >= IDLE_SHARE else Severity.INFO,
        fix=(Fix("start no more workers than there are CPUs", f"num_workers={max(1, int(cpus) // ranks - 1)}"),),
    )


@rule(
    "DAT005",
    "workers-restart",
    Severity.WARNING,
    why="at each epoch the workers are started anew, import everything again and fill their queues from nothing",
    fix=(
        Fix("keep the workers from epoch to epoch", "persistent_workers=True"),
        Fix("make the DataLoader once, before the loop over epochs"),
    ),
    confirm="time the first batch of the second epoch",
    source="PyTorch documentation, torch.utils.data.DataLoader, persistent_workers; 10 % is our bound",
)
def workers_restart(run: Run) -> Iterator[Evidence]:
    """Starting the workers (persistent_workers=False) takes at least 10 % of an epoch.

    Silent with a single epoch, without workers, and where only making the first batch takes that long.
    """
    for rank in run.ranks[:1]:
        setup, found = _loader(rank), _restart(rank)
        if setup is None or found is None:
            return
        start, steps, step, share = found
        yield Evidence(
            where=setup.created_at or "",
            what="start of the workers",
            seen=f"{ms(start)} ms an epoch of about {steps:.0f} steps, {share:.0%} of its time",
            wanted="once",
            cost=Cost(share_of_step=share, step_ms_now=step + start / max(steps, 1.0), step_ms_at_best=step),
        )


def _restart(rank: Rank) -> tuple[float, float, float, float] | None:
    """Milliseconds to start the workers, steps an epoch, milliseconds a step without the start, share of the start."""
    setup, step = _loader(rank), (rank.job.timed_step_ms if rank.job else None) or rank.step_ms
    if setup is None or setup.persistent_workers is not False or not setup.workers or setup.start_ms is None:
        return None
    if setup.epochs < 2 or not step:
        return None
    # The last epoch may have been cut short: dividing by one less errs on the long side.
    steps = setup.batches / (setup.epochs - 1) / _fetches(rank)
    start = setup.start_ms - (setup.batch_ms or 0.0)
    share = start / (start + steps * step) if start > 0 else 0.0
    return (start, steps, step, share) if share >= RESTART_SHARE else None


def _only_at_starts(rank: Rank) -> bool:
    """The workers start anew each epoch, and once they run their batches are ready in time."""
    setup = _loader(rank)
    if setup is None or setup.wait_ms is None or _restart(rank) is None or not rank.step_ms:
        return False
    return setup.wait_ms * _fetches(rank) < STARVED * rank.step_ms


@rule(
    "DAT006",
    "slow-storage",
    Severity.WARNING,
    why="the workers wait for the disk or the network rather than compute, so more CPUs do not help",
    fix=(
        Fix("copy the data to a local disk or to memory before training"),
        Fix("read few large files in sequence (tar shards, parquet, memory maps) instead of many small ones"),
        Fix("let more workers wait at once, with more batches ahead", "num_workers=16, prefetch_factor=4"),
    ),
    confirm="iostat -x 1, or nfsstat -c, while the loader runs alone",
    source="Linux manual, proc_pid_io(5); half of a batch's time is our bound",
)
def slow_storage(run: Run) -> Iterator[Evidence]:
    """The device waits for the loader (DAT001) and at least half of a batch's time is no CPU time, with files read.

    Silent where nothing is read (a dataset that sleeps or waits for a lock), and where workers outnumber the CPUs and
    so wait for those.
    """
    loss = _starved(run)
    setup = _loader(loss.ranks[0]) if loss else None
    if loss is None or setup is None or not _waits_for_reads(setup):
        return
    rank = loss.ranks[0]
    cpus = cpus_a_rank(run, rank)
    if cpus is not None and (setup.workers or 0) > cpus:
        return
    batch, on_cpu, read = setup.batch_ms or 0.0, setup.batch_cpu_ms or 0.0, setup.batch_read_bytes or 0
    waits = batch - on_cpu
    yield Evidence(
        where=setup.created_at or loss.where,
        what="a batch waits for reads",
        seen=f"{ms(waits)} of {ms(batch)} ms, {size(read)} read, {read / waits / 1e3:.3g} MB/s",
        wanted=f"below {WAITING_SHARE:.0%} of its time",
        confidence="likely",
        cost=loss.cost(on_cpu * _fetches(rank) / max(cpus or 1.0, 1.0)),
    )


def _waits_for_reads(setup: LoaderSetup) -> bool:
    batch, on_cpu, read = setup.batch_ms, setup.batch_cpu_ms, setup.batch_read_bytes
    if not batch or on_cpu is None or read is None or read < LEAST_READ_BYTES:
        return False
    return 1 - on_cpu / batch >= WAITING_SHARE


RULES: tuple[Rule[Run], ...] = (
    dataloader_starvation,
    pageable_copies,
    no_workers,
    too_many_workers,
    workers_restart,
    slow_storage,
)
