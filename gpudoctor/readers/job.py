"""Take the processes that nvidia-smi lists for one job, so that rules on who holds memory where can judge a paste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu, GpuProcess
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot


def run_of(machine: Snapshot) -> Run | None:
    """The compute processes of the commonest name; None where no process is listed with its memory.

    A rank is the process that holds most of the memory on its board: numbered in the order of boards, which is how
    launchers give them out. All others are processes without a rank.
    """
    boards = {board.index: board for board in (machine.gpus.boards if machine.gpus is not None else ())}
    names = Counter(process.name for board in boards.values() for process in _held(board))
    if not names:
        return None
    name = names.most_common(1)[0][0]
    homes: dict[int, tuple[int, int]] = {}
    for board in boards.values():
        for process in _held(board, name):
            homes[process.pid] = max(homes.get(process.pid, (0, -1)), (process.memory_bytes or 0, board.index))
    fullest: dict[int, tuple[int, int]] = {}
    for pid, (held, index) in homes.items():
        fullest[index] = max(fullest.get(index, (0, -1)), (held, pid))
    ranks = {pid: rank for rank, (_, (_, pid)) in enumerate(sorted(fullest.items()))}
    return Run(
        watch=Watch(gpus=tuple(_watched(board, name, ranks) for _, board in sorted(boards.items()))), machine=machine
    )


def _held(board: Gpu, name: str | None = None) -> Iterator[GpuProcess]:
    for process in board.processes or ():
        if process.kind == "compute" and process.memory_bytes and name in {None, process.name}:
            yield process


def _watched(board: Gpu, name: str | None, ranks: dict[int, int]) -> WatchedGpu:
    return WatchedGpu(
        index=board.index,
        name=board.name,
        memory_total_bytes=board.memory_total_bytes,
        holders=tuple(
            Holder(pid=process.pid, rank=ranks.get(process.pid), peak_bytes=process.memory_bytes)
            for process in _held(board, name)
        ),
    )
