"""The run folder: where `profile` puts what it saw, and what can be read back from it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gpudoctor.facts.job import Job, LoaderSetup

DEFAULT = Path("gpudoctor-runs")


class FolderError(ValueError):
    """The folder cannot be made or holds no run; the message says why and what to do."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent recorded in one process of the job."""

    rank: int
    world_size: int
    local_rank: int | None = None
    pid: int
    host: str | None = None
    argv: list[str] = []
    phase: str
    """The last it reached: `warm-up`, `timing`, `sync-calls`, `tracing` or `done`."""
    trace: str | None = None
    """File name in the run folder."""
    raised: str | None = None
    """Traceback of the exception it died of."""
    job: Job


@dataclass(frozen=True)
class Worker:
    """One batch made by a loader worker."""

    parent: int
    dataset: str
    wall_s: float
    cpu_s: float
    read_bytes: int


def make(out: Path | None, now: datetime | None = None) -> Path:
    """A new, empty run folder. Raises FolderError where it cannot be made or holds a run already."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%d-%H%M%S")
    folder = out or DEFAULT / stamp
    if out is None:
        # Two runs in one second, on a shared folder perhaps.
        for suffix in ("", *(f"-{number}" for number in range(2, 100))):
            folder = DEFAULT / f"{stamp}{suffix}"
            if not folder.exists():
                break
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FolderError(f"{folder} is not empty; give --out a new folder")
    except OSError as error:
        raise FolderError(f"cannot make {folder}: {error.strerror}; give --out a folder that can be written") from error
    return folder


def processes(folder: Path) -> list[Process]:
    """Of the processes that trained, one a rank and by rank; of several with one rank, the one that got furthest.

    A launcher imports torch too and takes no step: it is none of them. Where no process took a step, those that died of
    an exception are given, since that is what there is to tell.
    """
    found = []
    for path in folder.glob("process-*.json"):
        with suppress(OSError, msgspec.DecodeError):  # cut off while it was written
            found.append(msgspec.json.decode(path.read_bytes(), type=Process))
    trained = [process for process in found if process.job.steps_seen > 0]
    chosen: dict[int, Process] = {}
    for process in sorted(trained or found, key=lambda process: (process.trace is not None, process.job.steps_seen)):
        chosen[process.rank] = process
    costs = list(_workers(folder))
    return [_with_worker_costs(chosen[rank], costs) for rank in sorted(chosen)]


def raised(folder: Path) -> str | None:
    """The traceback the job died of: of the process that fell first, which the others' follow."""
    fallen = []
    for path in folder.glob("process-*.json"):
        with suppress(OSError, msgspec.DecodeError):
            process = msgspec.json.decode(path.read_bytes(), type=Process)
            if process.raised:
                fallen.append((path.stat().st_mtime, process.raised))
    return min(fallen)[1] if fallen else None


def agent_errors(folder: Path) -> dict[str, str]:
    """Process → why there is no agent in it, where the agent itself failed to start."""
    try:
        lines = (folder / "agent-errors.log").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    told = (line.partition(": ") for line in lines)
    return {f"process {pid}": f"the agent did not start: {error}" for pid, _, error in told if error}


def _workers(folder: Path) -> Iterator[Worker]:
    for path in folder.glob("workers-*.jsonl"):
        for line in path.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):  # the last line of a worker that was killed
                yield Worker(*msgspec.json.decode(line, type=tuple[int, str, float, float, int]))


def _with_worker_costs(process: Process, costs: list[Worker]) -> Process:
    """Its loaders, with what their batches cost where they were made."""
    by_dataset: dict[str, list[Worker]] = defaultdict(list)
    for cost in costs:
        if cost.parent == process.pid:
            by_dataset[cost.dataset].append(cost)

    def told(loader: LoaderSetup) -> LoaderSetup:
        mine = by_dataset.get(loader.dataset or "")
        if not mine or loader.batch_ms is not None:
            return loader
        return msgspec.structs.replace(
            loader,
            batch_ms=statistics.median(cost.wall_s for cost in mine) * 1e3,
            batch_cpu_ms=statistics.median(cost.cpu_s for cost in mine) * 1e3,
            batch_read_bytes=int(statistics.median(cost.read_bytes for cost in mine)),
        )

    job = msgspec.structs.replace(process.job, loaders=tuple(told(loader) for loader in process.job.loaders))
    return msgspec.structs.replace(process, job=job)
