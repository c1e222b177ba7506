"""Run a job with the agent in it and make one Run of all that was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.profiling import folder
from gpudoctor.profiling.job import RUN_FILE, assemble, digests
from gpudoctor.profiling.launch import Outcome, Plan, Progress, Stack, launch
from gpudoctor.profiling.sampler import Sampler
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot


def profile(
    plan: Plan,
    environ: Mapping[str, str],
    machine: Snapshot,
    *,
    tell: Callable[[list[Progress]], None] = lambda _: None,
    analysing: Callable[[], None] = lambda: None,
) -> Run:
    """Run the job, read its traces, lay its ranks beside each other, and save the Run in the run folder.

    `tell` hears of the ranks' progress, `analysing` once the job has ended. A job that failed, hung or was interrupted
    still makes a Run of what was seen. Raises LaunchError where it could not be started.
    """
    started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    sampler = Sampler()
    sampler.start()
    outcome = launch(plan, environ, tell=tell)
    analysing()
    trained = folder.processes(plan.folder)
    watch = sampler.result({process.pid: process.rank for process in trained})
    run = msgspec.structs.replace(
        _measured(plan.folder, trained),
        started_at=started_at,
        command=plan.command,
        exit_code=outcome.exit_code,
        ended_by_us=not plan.run_to_end and any(process.phase == "done" for process in trained),
        stalled_s=outcome.stalled_s,
        stacks={_title(stack): _text(stack) for stack in outcome.stacks},
        error_text=_error_text(outcome, plan.folder),
        watch=watch,
        machine=machine,
    )
    (plan.folder / RUN_FILE).write_bytes(run.to_json())
    return run


def _measured(run_folder: Path, trained: Sequence[folder.Process]) -> Run:
    traces = {process.trace: run_folder / process.trace for process in trained if process.trace}
    found, unread = digests([path for path in traces.values() if path.is_file()])
    by_trace = {rank.trace: rank for rank in found}
    ranks = [_rank(process, by_trace.get(process.trace)) for process in trained]
    run = assemble(ranks, unread={**unread, **folder.agent_errors(run_folder)})
    seen = {rank.rank for rank in ranks}
    world = max((rank.world_size or 1 for rank in ranks), default=None)
    return msgspec.structs.replace(
        run,
        world_size=world,
        missing={f"rank {number}": _MISSING for number in range(world or 0) if number not in seen},
        samples_per_s=_rate(ranks, "samples_per_step"),
        tokens_per_s=_rate(ranks, "tokens_per_step"),
    )


_MISSING = "its process took no step, or ran without the agent (python -I or -E, srun --export=NONE)"


def _rank(process: folder.Process, traced: Rank | None) -> Rank:
    """What the trace tells, and what the agent recorded; without a trace the length of a step is the timed one."""
    own = {
        "rank": process.rank,
        "local_rank": process.local_rank,
        "host": process.host,
        "pid": process.pid,
        "world_size": process.world_size,
        "job": process.job,
    }
    timed_ms = process.job.timed_step_ms
    if traced is None:
        return Rank(**own, step_ms=timed_ms)  # type: ignore[arg-type]
    if timed_ms is None or traced.step_ms is None or traced.shares is None:
        return msgspec.structs.replace(traced, **own)
    shares = traced.shares if traced.device == "cpu" else without_profiler(traced.shares, traced.step_ms, timed_ms)
    return msgspec.structs.replace(traced, **own, step_ms=timed_ms, traced_step_ms=traced.step_ms, shares=shares)


def without_profiler(shares: StepShares, traced_ms: float, timed_ms: float) -> StepShares:
    """Shares of a step that takes `timed_ms`, of one that took `traced_ms` under the profiler.

    The profiler slows the host and not the device: what the device did keeps its milliseconds, and the idle rest is
    split as it was. On a CPU job both are slowed alike, so this is for GPUs.
    """
    factor = traced_ms / timed_ms
    busy = {name: getattr(shares, name) * factor for name in ("compute", "communication", "copies")}
    total = sum(busy.values())
    if total >= 1:
        return StepShares(**{name: share / total for name, share in busy.items()})
    rest = (1 - total) / shares.idle if shares.idle else 0.0
    idle = {name: getattr(shares, name) * rest for name in ("loader", "sync", "launch", "host")}
    return StepShares(**busy, **idle) if shares.idle else StepShares(**busy, host=1 - total)


def _rate(ranks: Sequence[Rank], what: str) -> float | None:
    """A second, over all ranks; None where one of them does not tell."""
    total = 0.0
    for rank in ranks:
        amount = getattr(rank.job, what, None)
        step_ms = rank.job.timed_step_ms if rank.job else None
        if amount is None or not step_ms:
            return None
        total += amount * 1e3 / step_ms
    return total or None


def _error_text(outcome: Outcome, run_folder: Path) -> str | None:
    return folder.raised(run_folder) if outcome.exit_code else None


def _title(stack: Stack) -> str:
    return f"rank {stack.rank}" if stack.rank is not None else f"process {stack.pid}"


def _text(stack: Stack) -> str:
    """Innermost frame first, a blank line between threads."""
    return stack.error or "\n\n".join("\n".join(thread) for thread in stack.threads)
