"""What rules on GPU boards share: their names, which of them a job here will use, how a plain fault becomes a rule."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.gpu import Gpu
from gpudoctor.snapshot import Snapshot


def boards(machine: Snapshot) -> tuple[Gpu, ...]:
    """Those that were read; none where NVML was not."""
    return machine.gpus.boards if machine.gpus is not None else ()


def place(board: Gpu) -> str:
    """`GPU 3`."""
    return f"GPU {board.index}"


def used(machine: Snapshot) -> tuple[Gpu, ...]:
    """Boards that a job started here sees: all, or those CUDA_VISIBLE_DEVICES names (indices in PCI order, or UUIDs).

    All too where the list cannot be matched (MIG): better one board too many than none.
    """
    known = boards(machine)
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES") if machine.environment is not None else None
    if visible is None:
        return known
    parts = [part.strip() for part in visible.split(",") if part.strip()]
    named = [board for part in parts for board in _named(known, part)]
    return tuple(named) if named or not parts else known


def _named(known: Iterable[Gpu], part: str) -> list[Gpu]:
    if part.isdigit():
        return [board for board in known if board.index == int(part)]
    return [
        board for board in known if board.uuid is not None and part.startswith("GPU-") and board.uuid.startswith(part)
    ]


def busy(board: Gpu) -> bool:
    """Known to be under load right now: clocks and links are at what they can do only then."""
    return board.performance_state == 0 and board.utilization_ratio is not None and board.utilization_ratio >= 0.5
