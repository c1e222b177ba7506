"""Rules on the health of GPU boards. What the kernel log says of them is in kernel_log.py."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import gpu_clocks, gpu_use
from gpudoctor.rules.boards import RESET, boards, place, reset
from gpudoctor.snapshot import Snapshot

NVML = "NVML API reference, Device Queries"
MEMORY_GUIDE = "NVIDIA GPU Memory Error Management"
SUPPORT = Fix("take the board out of use and send it to the vendor (RMA)")
REBOOT = Fix("drain the node and reboot it", "sudo reboot", safety="destructive")
FALLEN_OFF_THE_BUS = 79


def _with(machine: Snapshot, problem: str) -> Iterator[Gpu]:
    """Boards that have it."""
    return (board for board in boards(machine) if getattr(board, problem))


@rule(
    "GPU001",
    "uncorrectable-ecc",
    Severity.ERROR,
    why="memory gave wrong data since the driver was loaded: results can be wrong, and jobs on the board are ended",
    fix=RESET,
    confirm="nvidia-smi -q -d ECC",
    source=f"{NVML}, nvmlDeviceGetTotalEccErrors; {MEMORY_GUIDE}",
)
def uncorrectable_ecc(machine: Snapshot) -> Iterator[Evidence]:
    """A board has counted uncorrectable memory errors since the driver was loaded, or CUDA ended a job for one.

    Silent for errors of earlier times (the aggregate count), which a reset has dealt with, and without ECC.
    """
    for board in _with(machine, "ecc_uncorrected_volatile"):
        count = f"{board.ecc_uncorrected_volatile}"
        yield Evidence(
            where=place(board), what="uncorrectable memory errors", seen=count, wanted="0", fix=(reset(board),)
        )
    for text in machine.told("uncorrectable_ecc"):
        yield Evidence(what="CUDA", seen=text.words["error"], wanted="no error")


@rule(
    "GPU002",
    "row-remap-pending",
    Severity.ERROR,
    why="a bad row of memory stays in use until the board is reset",
    fix=RESET,
    confirm="nvidia-smi -q -d ROW_REMAPPER",
    source=f"{NVML}, nvmlDeviceGetRemappedRows; {MEMORY_GUIDE}, Row Remapping",
)
def row_remap_pending(machine: Snapshot) -> Iterator[Evidence]:
    """A row of memory waits for its replacement.

    Silent for rows that were replaced, which are done with.
    """
    for board in _with(machine, "row_remap_pending"):
        yield Evidence(
            where=place(board), what="row remapping", seen="pending", wanted="none pending", fix=(reset(board),)
        )


@rule(
    "GPU003",
    "row-remap-failed",
    Severity.ERROR,
    why="no spare row is left for a bad one, so memory errors will come back",
    fix=SUPPORT,
    confirm="nvidia-smi -q -d ROW_REMAPPER",
    source=f"{NVML}, nvmlDeviceGetRemappedRows; {MEMORY_GUIDE}, RMA policy",
)
def row_remap_failed(machine: Snapshot) -> Iterator[Evidence]:
    """A row of memory could not be replaced."""
    for board in _with(machine, "row_remap_failed"):
        yield Evidence(where=place(board), what="row remapping", seen="failed", wanted="never failed")


@rule(
    "GPU004",
    "retired-page-pending",
    Severity.ERROR,
    why="a bad page of memory stays in use until the board is reset or the driver loaded anew",
    fix=RESET,
    confirm="nvidia-smi -q -d PAGE_RETIREMENT",
    source=f"{NVML}, nvmlDeviceGetRetiredPagesPendingStatus; Dynamic Page Retirement",
)
def retired_page_pending(machine: Snapshot) -> Iterator[Evidence]:
    """A page of memory waits for its retirement (boards before Ampere).

    Silent for pages that are retired, which are done with.
    """
    for board in _with(machine, "retired_page_pending"):
        yield Evidence(
            where=place(board), what="page retirement", seen="pending", wanted="none pending", fix=(reset(board),)
        )


@rule(
    "GPU007",
    "gpu-lost",
    Severity.ERROR,
    why="the board no longer answers on the bus: a job that uses it fails or hangs",
    fix=(
        Fix("reboot the node (with the power off, if a reboot is not enough)", "sudo reboot", safety="destructive"),
        Fix("if it comes back, look at power cables, seating and cooling, then have the board replaced"),
    ),
    confirm="nvidia-smi; sudo dmesg | grep -i xid",
    source="NVML API reference, NVML_ERROR_GPU_IS_LOST; NVIDIA Xid catalogue, Xid 79",
)
def gpu_lost(machine: Snapshot) -> Iterator[Evidence]:
    """NVML lists a board and cannot talk to it, or the kernel log says that it has fallen off the bus (Xid 79).

    Silent for a board that NVML reads well now: it was reset since.
    """
    lost = [board for board in boards(machine) if board.lost]
    for board in lost:
        yield Evidence(where=place(board), what="NVML", seen=board.error or "GPU is lost", wanted="an answer")
    if lost or machine.kernel_log is None:
        return
    well = {_slot(board.pci_bus_id) for board in boards(machine)}
    for event in machine.kernel_log.xids:
        if event.xid == FALLEN_OFF_THE_BUS and _slot(event.pci_bus_id) not in well:
            yield Evidence(
                where=f"GPU {event.pci_bus_id}" if event.pci_bus_id else "GPU",
                what="kernel log",
                seen=f"Xid 79: {event.text or 'fallen off the bus'}",
                wanted="none",
                confidence="certain" if machine.gpus is None else "likely",
            )


def _slot(bus_id: str | None) -> str:
    """`0000:0f:00`, of any of the ways to write it."""
    parts = (bus_id or "").lower().split(".")[0].split(":")
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:]]) if len(parts) == 3 else ""


@rule(
    "GPU018",
    "recovery-action",
    Severity.ERROR,
    why="the driver itself asks for this before the board is used again",
    fix=RESET,
    confirm="nvidia-smi -q | grep -A 1 'GPU Recovery Action'",
    source=f"{NVML}, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (driver r570 and newer)",
    because=("GPU007",),
)
def recovery_action(machine: Snapshot) -> Iterator[Evidence]:
    """NVML asks for a reset, a reboot or a drain, or refuses the board until then."""
    for board in boards(machine):
        action = board.recovery_action
        if action not in {None, "none"}:
            yield Evidence(
                where=place(board),
                what="recovery action",
                seen=(action or "").replace("_", " "),
                wanted="none",
                fix=(_recovery(board),),
            )


def _recovery(board: Gpu) -> Fix:
    match board.recovery_action:
        case "node_reboot" | "system_reboot":
            return REBOOT
        case "drain_p2p":
            return Fix("end the jobs that use NVLink on this node, so that the driver can stop peer traffic")
        case "recover_imex_domain":
            return Fix("end the jobs of the IMEX domain and start its daemons again", safety="destructive")
        case "bus_reset":
            return Fix("drain the node and reset the board's PCI slot, or reboot", "sudo reboot", safety="destructive")
        case _:
            return reset(board)


@rule(
    "GPU019",
    "ecc-off",
    Severity.INFO,
    why="memory errors are not seen: a wrong bit goes into the weights",
    fix=Fix("switch it on; it takes effect after a reset", "sudo nvidia-smi -e 1", safety="needs root"),
    confirm="nvidia-smi -q -d ECC",
    source=f"{NVML}, nvmlDeviceGetEccMode",
)
def ecc_off(machine: Snapshot) -> Iterator[Evidence]:
    """A board that has ECC has it switched off.

    Silent for GeForce and TITAN boards, which are sold with it off or without.
    """
    for board in boards(machine):
        if board.ecc_mode is False and not any(word in (board.name or "") for word in ("GeForce", "TITAN")):
            yield Evidence(where=place(board), what="ECC", seen="off", wanted="on")


@rule(
    "GPU020",
    "persistence-off",
    Severity.INFO,
    why="the driver unloads when nobody uses the GPU: the next start takes seconds longer, and counters are lost",
    fix=Fix("run the persistence daemon", "sudo systemctl enable --now nvidia-persistenced", safety="needs root"),
    confirm="nvidia-smi -q | grep Persistence",
    source="NVIDIA driver persistence documentation",
)
def persistence_off(machine: Snapshot) -> Iterator[Evidence]:
    """Persistence mode is off.

    Silent on WSL and Windows, which have none, in containers, where the host decides, and under a desktop, which holds
    the driver anyway.
    """
    if machine.host is None or machine.host.wsl or machine.host.system != "Linux":
        return
    if machine.container is None or machine.container.kind is not None:
        return
    off = [
        str(board.index)
        for board in boards(machine)
        if board.persistence_mode is False and not any(item.kind == "graphics" for item in board.processes or ())
    ]
    if off:
        yield Evidence(where=f"GPU {', '.join(off)}", what="persistence mode", seen="off", wanted="on")


@rule(
    "GPU021",
    "inforom-corrupt",
    Severity.WARNING,
    why="the board's own records (ECC counts, serial number, power limits) can no longer be trusted",
    fix=Fix("ask the vendor: the board's InfoROM has to be written anew"),
    confirm="nvidia-smi 2>&1 | grep -i inforom",
    source=f"{NVML}, nvmlDeviceGetInforomConfigurationChecksum, NVML_ERROR_CORRUPTED_INFOROM",
)
def inforom_corrupt(machine: Snapshot) -> Iterator[Evidence]:
    """NVML finds the board's InfoROM corrupt.

    Silent for boards without one, and where NVML does not tell.
    """
    for board in _with(machine, "inforom_corrupt"):
        yield Evidence(where=place(board), what="InfoROM", seen="corrupt", wanted="valid")


RULES: tuple[Rule[Snapshot], ...] = (
    uncorrectable_ecc,
    row_remap_pending,
    row_remap_failed,
    retired_page_pending,
    gpu_lost,
    *gpu_clocks.RULES,
    *gpu_use.RULES,
    recovery_action,
    ecc_off,
    persistence_off,
    inforom_corrupt,
)
