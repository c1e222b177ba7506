"""Rules on what the hardware did when it was made to work (`check --deep`)."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.measured import Measured
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import boards, is_laptop
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import gpus as table

OF_DATA_SHEET = 0.5
"""Least share of the data sheet's rate in products of 8192. Sound boards reach 70 to 87 % (H200, measured 2026-12: 70 %
in bf16, 80 % in TF32, 75 % in fp32; stas00/ml-engineering, MAMF table @744d01e: 73 to 87 % in bf16)."""
OF_MEMORY = 0.6
"""Least share of the data sheet's memory bandwidth in a copy. An H200 reaches 86 % (measured 2026-12), boards whose ECC
shares the memory bus some 75 %."""
OF_LINK = 0.5
"""Least share of a PCIe link's raw rate from pinned memory. An H200 reaches 55 of 63 GB/s (87 %, measured 2026-12)."""
OF_OTHERS = 0.85
"""Least share of the median of the other boards of the same model. 5 % between them is normal (stas00/ml-engineering,
accelerators); this is three times as much."""
LINK_OF_OTHERS = 0.6
"""The same for the host link, where a board at the far processor is slower although nothing is wrong."""
LEAST_POWER_W = 200.0
"""Boards built for less run into their power limit long before the rate of their data sheet (T4, L4)."""
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Raw rate of a lane by PCIe generation, one way, after line coding (PCI Express Base Specification)."""
SOURCE = "data sheet figure × our bound (gpudoctor/rules/measured.py); measured by check --deep"


@rule(
    "PRE006",
    "slow-gemm",
    Severity.WARNING,
    why="matrix products are most of a training step, and in a job of several GPUs the slowest sets the pace",
    fix=(
        Fix("look at heat, power and clocks while a job runs", "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"),
        Fix("where nothing holds the clocks down, take the GPU out of use and run the vendor's diagnostics"),
    ),
    confirm="dcgmi diag -r 3; or time torch.matmul of two 8192 × 8192 matrices on this GPU and on another",
    source=SOURCE,
    because=("GPU008", "GPU009", "GPU010", "GPU011", "GPU013"),
)
def slow_gemm(machine: Snapshot) -> Iterator[Evidence]:
    """A GPU multiplies at less than 85 % of the median of the other boards of its model, or of half its data sheet's
    rate (likely).

    Silent under MIG and vGPU, on laptops, on boards whose power limit was lowered or that others use, for models that
    are not in the table or are built for less than 200 W (their share of the data sheet), and for the CPU.
    """
    measured = machine.measured
    rates = {
        (row.format, row.gpu): row.tflops
        for row in (measured.gemm if measured else ())
        if row.gpu is not None and row.tflops
    }
    for name in dict.fromkeys(name for name, _ in rates):
        by_gpu = {gpu: rate for (kind, gpu), rate in rates.items() if kind == name}
        for board, rate, usual in _comparable(machine, by_gpu):
            row = table.find(board.name)
            peak = _peak(row, name) if row is not None and (row.power_w or 0) >= LEAST_POWER_W else None
            yield from _slow(board, f"{name} product{_held_down(measured, board)}", "TFLOP/s", rate, usual, peak)


@rule(
    "PRE007",
    "slow-memory",
    Severity.WARNING,
    why="optimizer steps, norms and activations run at the speed of the GPU's memory",
    fix=Fix("look at the memory clock under load and at remapped rows; reset the board", "nvidia-smi -q -d CLOCK,ECC"),
    confirm="dcgmi diag -r 3; or nvbandwidth -t device_local_copy",
    source=SOURCE,
    because=("GPU008", "GPU009", "GPU013"),
)
def slow_memory(machine: Snapshot) -> Iterator[Evidence]:
    """A copy inside a GPU's memory is slower than 85 % of the median of the other boards of its model, or than 60 % of
    its data sheet's bandwidth (likely).

    Silent under MIG and vGPU, on laptops, on boards whose power limit was lowered or that others use, and for models
    that are not in the table.
    """
    measured = machine.measured
    rates = {row.gpu: row.gb_s for row in (measured.memory if measured else ()) if row.gpu is not None}
    for board, rate, usual in _comparable(machine, rates):
        row = table.find(board.name)
        peak = row.memory_bandwidth_gb_s * OF_MEMORY if row is not None and row.memory_bandwidth_gb_s else None
        yield from _slow(board, "copy inside its memory", "GB/s", rate, usual, peak)


@rule(
    "PRE008",
    "slow-host-link",
    Severity.WARNING,
    why="batches reach this GPU late, and checkpoints and offloading wait",
    fix=(
        Fix("look at the link under load: generation and width", "nvidia-smi -q | grep -A 12 'GPU Link Info'"),
        Fix("bind the job's processes to the CPUs near their GPU, and look for other traffic below the same switch"),
    ),
    confirm="nvbandwidth -t host_to_device_memcpy_ce,device_to_host_memcpy_ce",
    source="PCI Express Base Specification (rate of a lane) × our bound; measured by check --deep",
    because=("PCI001", "PCI002", "PCI003", "PCI005", "GPU013"),
)
def slow_host_link(machine: Snapshot) -> Iterator[Evidence]:
    """Copies between pinned memory and a GPU run below half of what its PCIe link can carry, or below 60 % of the
    median of the other boards of its model.

    Silent for pageable memory (the CPU's speed), under MIG and vGPU, on laptops, on boards that others use or that
    reach the processor by NVLink-C2C, and where the link is not known. Likely in virtual machines and on WSL, which
    may lead copies another way.
    """
    measured, host = machine.measured, machine.host
    unsure = host is None or bool(host.virtual_machine) or bool(host.wsl)
    for to_gpu, way in ((True, "to the GPU"), (False, "to the host")):
        rates = {
            row.gpu: row.gb_s
            for row in (measured.host_links if measured else ())
            if row.pinned and row.to_gpu == to_gpu
        }
        for board, rate, usual in _comparable(machine, rates):
            if board.memory_node is not None:
                continue
            link = _link_gb_s(board)
            what = f"copy from pinned memory {way}" if to_gpu else f"copy {way}, pinned memory"
            if link is not None and rate < OF_LINK * link:
                wanted = f"{_figure(OF_LINK * link)} GB/s or more ({OF_LINK:.0%} of its PCIe link)"
            elif usual is not None and rate < LINK_OF_OTHERS * usual:
                wanted = f"about {_figure(usual)} GB/s, as its equals here"
            else:
                continue
            yield Evidence(
                where=_place(board),
                what=what,
                seen=f"{_figure(rate)} GB/s",
                wanted=wanted,
                confidence="likely" if unsure else "certain",
            )


def slow_links_under_load(machine: Snapshot) -> Iterator[Evidence]:
    """For PCI002: what NVML said of the link while it carried copies."""
    for load in machine.measured.loads if machine.measured else ():
        board = next((board for board in boards(machine) if board.index == load.gpu), None)
        if load.stage != "host_link" or board is None or is_laptop(board) or board.memory_node is not None:
            continue
        now, most = load.pcie_generation, board.pcie_generation_max
        if now is not None and most is not None and now < most:
            yield Evidence(where=_place(board), what="PCIe generation under load", seen=str(now), wanted=str(most))


def _comparable(machine: Snapshot, rates: dict[int, float]) -> Iterator[tuple[Gpu, float, float | None]]:
    """Boards whose figures are their own, each with its rate and the median of the others of its model."""
    from statistics import median  # here: it costs a quick check a hundredth of a second

    sound = {board.index: board for board in boards(machine) if board.index in rates and _is_its_own(machine, board)}
    for index, board in sound.items():
        equals = [rates[other] for other, item in sound.items() if other != index and item.name == board.name]
        yield board, rates[index], median(equals) if equals else None


def _is_its_own(machine: Snapshot, board: Gpu) -> bool:
    shared = machine.measured is None or board.index in machine.measured.shared
    limit, usual = board.power_limit_w, board.power_limit_default_w
    capped = limit is not None and usual is not None and limit < usual
    guest = board.virtualization not in {None, "none", "passthrough"}
    return not (shared or capped or guest or board.mig_mode or is_laptop(board))


def _slow(
    board: Gpu, what: str, unit: str, rate: float, usual: float | None, least: float | None
) -> Iterator[Evidence]:
    if usual is not None and rate < OF_OTHERS * usual:
        wanted = f"about {_figure(usual)} {unit}, as its equals here"
        by_equals = True
    elif least is not None and rate < least:
        wanted = f"{_figure(least)} {unit} or more"
        by_equals = False
    else:
        return
    yield Evidence(
        where=_place(board),
        what=what,
        seen=f"{_figure(rate)} {unit}",
        wanted=wanted,
        source="measured here, the median of the other boards of its model" if by_equals else None,
        confidence="certain" if by_equals else "likely",
    )


def _peak(row: table.Board, name: str) -> float | None:
    """Half of the data sheet's rate in this format."""
    rate = {
        "fp32": row.fp32_tflops,
        "tf32": row.tf32_tflops,
        "fp16": row.fp16_tflops,
        "bf16": row.fp16_tflops,
    }.get(name)
    return rate * OF_DATA_SHEET if rate else None


def _held_down(measured: Measured | None, board: Gpu) -> str:
    """What held the clocks down meanwhile, as far as that is no usual thing."""
    usual = {"sw_power_cap", "applications_clocks_setting", "sync_boost", "display_clock_setting"}
    reasons = {
        reason
        for load in (measured.loads if measured else ())
        if load.gpu == board.index and load.stage == "gemm"
        for reason in load.throttle_reasons or ()
        if reason not in usual
    }
    return f" (meanwhile {', '.join(sorted(reasons))})" if reasons else ""


def _link_gb_s(board: Gpu) -> float | None:
    """What board and slot can carry together, one way."""
    lanes = [lanes for lanes in (board.pcie_width_max, board.pcie_slot_width) if lanes]
    a_lane = LANE_GB_S.get(board.pcie_generation_max or 0)
    return a_lane * min(lanes) if a_lane is not None and lanes else None


def _figure(rate: float) -> str:
    """Three figures, and all that stand before the point."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _place(board: Gpu) -> str:
    return f"GPU {board.index}"


RULES: tuple[Rule[Snapshot], ...] = (slow_gemm, slow_memory, slow_host_link)
