"""What rules on GPU boards share: their names, which of them a job here will use, which talk over PCIe."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.topology import GpuPair
from gpudoctor.findings import Fix
from gpudoctor.snapshot import Snapshot

RESET = Fix("drain the node and reset the board", "sudo nvidia-smi --gpu-reset", safety="destructive")


def boards(machine: Snapshot) -> tuple[Gpu, ...]:
    """Those that were read; none where NVML was not."""
    return machine.gpus.boards if machine.gpus is not None else ()


def place(board: Gpu) -> str:
    """`GPU 3`."""
    return f"GPU {board.index}"


def reset(board: Gpu) -> Fix:
    """RESET, of this board."""
    return Fix(RESET.text, f"{RESET.command} -i {board.index}", safety=RESET.safety)


def is_laptop(board: Gpu) -> bool:
    """Its lanes are soldered, and its power limit moves with the fans and the battery."""
    return any(word in (board.name or "") for word in ("Laptop", "with Max-Q"))


def used(machine: Snapshot) -> tuple[Gpu, ...]:
    """Boards that a job started here sees: all, or those CUDA_VISIBLE_DEVICES names, up to the first it cannot mean.

    Empty where the list cannot be matched: numbers follow CUDA's own order, which is that of NVML where all boards are
    of one model, or with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    known = boards(machine)
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES") if machine.environment is not None else None
    if machine.environment is None or visible is None:
        return known
    by_bus = machine.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    one_order = by_bus or len({board.name for board in known}) < 2
    parts = [part.strip() for part in visible.split(",")]
    if not one_order and any(part.isdecimal() for part in parts):
        return known if {part for part in parts if part} == {str(board.index) for board in known} else ()
    named: dict[int, Gpu] = {}
    for part in parts:
        board = _named(known, part)
        if board is None:
            break
        named[board.index] = board
    return tuple(named.values())


def _named(known: tuple[Gpu, ...], part: str) -> Gpu | None:
    if part.isdecimal():
        return known[int(part)] if int(part) < len(known) else None
    if part.startswith("GPU-"):
        return next((board for board in known if (board.uuid or "").startswith(part)), None)
    if part.startswith("MIG-"):
        return next((board for board in known if any(item.uuid == part for item in board.mig_instances)), None)
    return None


def used_pairs(machine: Snapshot) -> list[GpuPair]:
    """Pairs of those boards; all pairs where only a matrix was pasted."""
    pairs = machine.topology.pairs if machine.topology is not None else None
    if machine.gpus is None:
        return list(pairs or ())
    indices = {board.index for board in used(machine)}
    return [pair for pair in pairs or () if {pair.first, pair.second} <= indices]


def linked(pair: GpuPair) -> bool:
    """NVLink joins the two."""
    return bool(pair.nvlink) or (pair.path or "").startswith("NV")


def busy(board: Gpu) -> bool:
    """Known to be under load right now: clocks and links are at what they can do only then."""
    return board.performance_state == 0 and board.utilization_ratio is not None and board.utilization_ratio >= 0.5


def idle(board: Gpu) -> bool:
    """The driver says that nothing runs, so that what holds the clocks down means nothing."""
    return "gpu_idle" in (board.throttle_reasons or ())
