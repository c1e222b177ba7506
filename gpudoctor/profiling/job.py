"""Traces of all ranks in, one Run out; or a Run saved earlier."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.profiling.blocks import NO_TRACE, TraceError
from gpudoctor.profiling.digest import digest
from gpudoctor.profiling.paces import paces
from gpudoctor.profiling.ranks import arrivals, clocks_ahead, links, meetings
from gpudoctor.profiling.timeline import SHARES
from gpudoctor.run import Run, RunError

RUN_FILE = "run.json"
"""Where a run folder keeps the run."""
TRACE_NAME = re.compile(r"\.json(\.gz)?$")


def analyze(paths: Sequence[Path], *, workers: int | None = None, progress: Callable[[str], None] | None = None) -> Run:
    """The run that these traces, or this run folder, are of.

    `progress` is called with the name of each trace as it is done. Traces that cannot be read stand in `Run.unread`.
    Raises TraceError where none could be, or none is there; OSError where a path does not exist.
    """
    if (saved := _saved(paths)) is not None:
        return saved
    files = {file: found for path in paths for file, found in _traces(path)}
    ranks, unread = digests(list(files), workers=workers, progress=progress)
    # What else lies in a folder is nobody's trace; a file the user named is meant to be one.
    looked_through = {file.name for file, found in files.items() if found}
    unread = {name: why for name, why in unread.items() if why != NO_TRACE or name not in looked_through}
    ranks, aside = _one_each(ranks)
    if not ranks:
        reasons = [f"{name}: {reason}" for name, reason in unread.items()]
        where = ", ".join(str(path) for path in paths)
        raise TraceError("; ".join(reasons) or f"no trace (*.json, *.json.gz) in {where}")
    return assemble(ranks, unread={**unread, **aside})


def _saved(paths: Sequence[Path]) -> Run | None:
    """The run of a run folder (or of its file), as it was saved."""
    if len(paths) != 1:
        return None
    file = paths[0] / RUN_FILE if paths[0].is_dir() else paths[0]
    if file.name != RUN_FILE or not file.is_file():
        return None
    try:
        return Run.from_json(file.read_bytes())
    except RunError as error:
        raise TraceError(f"{file.name}: {error}") from error


def _traces(path: Path) -> Iterable[tuple[Path, bool]]:
    """The file itself; of a folder, what may be traces in it, marked as found there."""
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if TRACE_NAME.search(file.name):
                yield file, True
    else:
        path.stat()
        yield path, False


def digests(
    files: Sequence[Path], *, workers: int | None = None, progress: Callable[[str], None] | None = None
) -> tuple[list[Rank], dict[str, str]]:
    """A rank for each trace that can be read, and for the others the reason. One process a trace, as many as CPUs."""
    cpus = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    done: dict[Path, Rank] = {}
    unread: dict[str, str] = {}
    numbered = _numbered(files)

    def note(file: Path, result: Callable[[], Rank]) -> None:
        try:
            done[file] = result()
        except (TraceError, OSError) as error:
            unread[file.name] = str(error)
        if progress is not None:
            progress(file.name)

    if len(files) == 1 or cpus == 1 or sum(file.stat().st_size for file in files) < SMALL_BYTES:
        for file in files:
            note(file, lambda file=file: digest(file, workers=cpus, rank=numbered[file]))  # type: ignore[misc]
    else:
        with ProcessPoolExecutor(min(cpus, len(files)), mp_context=get_context("spawn")) as pool:
            inner = max(1, cpus // len(files))
            asked = {pool.submit(digest, file, workers=inner, rank=numbered[file]): file for file in files}
            for future in as_completed(asked):
                note(asked[future], future.result)
    return [done[file] for file in files if file in done], unread


SMALL_BYTES = 4 << 20
"""Traces of less than this together are read before another process would have started."""


def _numbered(files: Sequence[Path]) -> dict[Path, int]:
    """Rank of each file by its name, for traces that do not say: `rank3`, else the last number in which they differ."""
    named = {file: re.search(r"rank[-_.]?(\d+)", file.name, re.IGNORECASE) for file in files}
    if all(named.values()):
        return {file: int(found.group(1)) for file, found in named.items() if found}
    numbers = [[int(number) for number in re.findall(r"\d+", file.name)] for file in files]
    if len({len(own) for own in numbers}) == 1:
        for column in zip(*numbers, strict=True):
            if sorted(column) == list(range(len(files))):
                return dict(zip(files, column, strict=True))
    return {file: index for index, file in enumerate(files)}


def _one_each(found: Iterable[Rank]) -> tuple[list[Rank], dict[str, str]]:
    """One trace a rank: of several the one with most steps, then the last."""
    best: dict[int, Rank] = {}
    aside: dict[str, str] = {}
    for rank in found:
        held = best.get(rank.rank)
        kept, left = (rank, held) if held is None or (rank.steps or 0) >= (held.steps or 0) else (held, rank)
        best[rank.rank] = kept
        if left is not None:
            aside[left.trace or "?"] = f"another trace of rank {rank.rank}, {kept.trace}, is used"
    return [best[number] for number in sorted(best)], aside


def assemble(ranks: Sequence[Rank], *, unread: dict[str, str] | None = None) -> Run:
    """Lay the ranks beside each other."""
    world = max((rank.world_size or 0 for rank in ranks), default=0) or len(ranks)
    seen = {rank.rank for rank in ranks}
    met = meetings(ranks)
    ahead = clocks_ahead(ranks, met)
    ranks = [msgspec.structs.replace(rank, clock_ahead_ns=ahead.get(rank.rank)) for rank in ranks]
    steps = [rank.steps for rank in ranks if rank.steps is not None]
    lengths = [rank.step_ms for rank in ranks if rank.step_ms is not None]
    return Run(
        world_size=world,
        ranks=tuple(ranks),
        missing={f"rank {number}": "no trace of it" for number in range(world) if number not in seen},
        unread=unread or {},
        steps=min(steps, default=None),
        step_ms=sum(lengths) / len(lengths) if lengths else None,
        shares=mean_shares([rank.shares for rank in ranks if rank.shares is not None]),
        arrivals=arrivals(ranks, met),
        links=tuple(links(ranks, met)),
        paces=paces(ranks),
    )


def mean_shares(shares: Sequence[StepShares]) -> StepShares | None:
    """Mean over ranks; None of none."""
    if not shares:
        return None
    return StepShares(**{name: sum(getattr(own, name) for own in shares) / len(shares) for name in SHARES})
