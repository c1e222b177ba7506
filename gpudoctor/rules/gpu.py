"""Health and settings of the GPU boards. What the kernel log says of them is in kernel_log.py."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import boards, busy, place, used
from gpudoctor.rules.sizes import size
from gpudoctor.snapshot import Snapshot

NVML = "NVML API reference, Device Queries"
MEMORY_GUIDE = "NVIDIA GPU Memory Error Management"
RESET = Fix(
    "drain the node, then reset the board",
    "nvidia-smi --gpu-reset -i INDEX",
    safety="needs root",
)
SUPPORT = Fix("take the board out of use and send it to the vendor (RMA)", safety="destructive")
HELD_BY_NOBODY = 300 * 2**20  # a bare CUDA context holds 545 MB on an H200 (measured 2026-11), a driver's rest less


def _where(machine: Snapshot, problem: str) -> Iterator[tuple[Gpu, str]]:
    """Boards that have it."""
    for board in boards(machine):
        if getattr(board, problem):
            yield board, place(board)


@rule(
    "GPU001",
    "uncorrectable-ecc",
    Severity.ERROR,
    why="memory gave wrong data since the driver was loaded: results can be wrong, and jobs on the board are ended",
    fix=RESET,
    confirm="nvidia-smi -q -d ECC",
    source=f"{NVML}, nvmlDeviceGetTotalEccErrors; {MEMORY_GUIDE}",
    because=("GPU007",),
)
def uncorrectable_ecc(machine: Snapshot) -> Iterator[Evidence]:
    """A board has counted uncorrectable memory errors since the driver was loaded, or CUDA ended a job for one.

    Silent for errors of earlier times (the aggregate count), which a reset has dealt with, and without ECC.
    """
    for board, where in _where(machine, "ecc_uncorrected_volatile"):
        yield Evidence(where=where, what="uncorrectable errors", seen=f"{board.ecc_uncorrected_volatile}", wanted="0")
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
    """A row of memory waits for its replacement."""
    for _, where in _where(machine, "row_remap_pending"):
        yield Evidence(where=where, what="row remapping", seen="pending", wanted="none pending")


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
    for _, where in _where(machine, "row_remap_failed"):
        yield Evidence(where=where, what="row remapping", seen="failed", wanted="never failed")


@rule(
    "GPU004",
    "retired-page-pending",
    Severity.ERROR,
    why="a bad page of memory stays in use until the driver is loaded anew",
    fix=RESET,
    confirm="nvidia-smi -q -d PAGE_RETIREMENT",
    source=f"{NVML}, nvmlDeviceGetRetiredPagesPendingStatus; Dynamic Page Retirement",
)
def retired_page_pending(machine: Snapshot) -> Iterator[Evidence]:
    """A page of memory waits for its retirement (boards before Ampere)."""
    for _, where in _where(machine, "retired_page_pending"):
        yield Evidence(where=where, what="page retirement", seen="pending", wanted="none pending")


@rule(
    "GPU007",
    "gpu-lost",
    Severity.ERROR,
    why="the board no longer answers on the bus: a job that uses it fails or hangs",
    fix=(
        Fix("reboot the node; if it comes back, look at power cables, seating and cooling", safety="restarts"),
        SUPPORT,
    ),
    confirm="nvidia-smi; dmesg | grep -i xid",
    source="NVML API reference, NVML_ERROR_GPU_IS_LOST; NVIDIA Xid errors, Xid 79",
)
def gpu_lost(machine: Snapshot) -> Iterator[Evidence]:
    """NVML lists a board and cannot talk to it, or the kernel log says that it has fallen off the bus (Xid 79).

    Silent for a board that NVML reads well now: it was reset since.
    """
    lost = [board for board in boards(machine) if board.lost]
    for board in lost:
        yield Evidence(where=place(board), what="answer", seen=board.error or "GPU is lost", wanted="any")
    well = {_slot(board.pci_bus_id) for board in boards(machine) if not board.lost and board.pci_bus_id}
    if lost or machine.kernel_log is None:
        return
    for event in machine.kernel_log.xids:
        if event.xid == 79 and _slot(event.pci_bus_id) not in well:
            yield Evidence(
                where=event.pci_bus_id or "",
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
    "GPU008",
    "hardware-slowdown",
    Severity.WARNING,
    why="the board runs at a fraction of its clocks, and in a job of several it holds back all others",
    fix=Fix("look at the power supply, its cables and the chassis' power brake; then at cooling"),
    confirm="nvidia-smi -q -d PERFORMANCE",
    source=f"{NVML}, nvmlClocksEventReasons",
)
def hardware_slowdown(machine: Snapshot) -> Iterator[Evidence]:
    """The hardware itself slows the board down, or its power brake is pulled."""
    yield from _throttled(machine, {"hw_slowdown", "hw_power_brake_slowdown"})


@rule(
    "GPU009",
    "thermal-slowdown",
    Severity.WARNING,
    why="the board is too hot for its clocks, and in a job of several it holds back all others",
    fix=Fix("look at fans, air flow and inlet temperature"),
    confirm="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    source=f"{NVML}, nvmlClocksEventReasons",
    because=(),
)
def thermal_slowdown(machine: Snapshot) -> Iterator[Evidence]:
    """Driver or hardware slow the board down for its temperature."""
    yield from _throttled(machine, {"hw_thermal_slowdown", "sw_thermal_slowdown"})


def _throttled(machine: Snapshot, reasons: set[str]) -> Iterator[Evidence]:
    for board in boards(machine):
        active = sorted(reasons & set(board.throttle_reasons or ()))
        if active:
            heat = f" at {board.temperature_c} °C" if board.temperature_c is not None else ""
            yield Evidence(where=place(board), what="clocks", seen=f"{', '.join(active)}{heat}", wanted="no slowdown")


@rule(
    "GPU010",
    "power-limit-lowered",
    Severity.WARNING,
    why="the board slows down under load to stay below the limit",
    fix=Fix(
        "set the default limit, unless the site lowered it on purpose", "nvidia-smi -pl WATTS", safety="needs root"
    ),
    confirm="nvidia-smi -q -d POWER",
    source=f"{NVML}, nvmlDeviceGetEnforcedPowerLimit",
)
def power_limit_lowered(machine: Snapshot) -> Iterator[Evidence]:
    """The power limit in force is below the board's default by more than 1 W."""
    for board in boards(machine):
        limit, default = board.power_limit_w, board.power_limit_default_w
        if limit is not None and default is not None and 0 < limit < default - 1:
            fix = Fix(
                "set the default limit, unless the site lowered it on purpose",
                f"nvidia-smi -i {board.index} -pl {default:.0f}",
                safety="needs root",
            )
            yield Evidence(
                where=place(board), what="power limit", seen=f"{limit:.0f} W", wanted=f"{default:.0f} W", fix=(fix,)
            )


@rule(
    "GPU011",
    "clocks-capped",
    Severity.WARNING,
    why="the board cannot reach its clocks, and in a job of several it holds back all others",
    fix=Fix("give the clocks back to the driver", "nvidia-smi -rgc && nvidia-smi -rac", safety="needs root"),
    confirm="nvidia-smi -q -d CLOCK,PERFORMANCE",
    source=f"{NVML}, nvmlClocksEventReasons, ApplicationsClocksSetting",
)
def clocks_capped(machine: Snapshot) -> Iterator[Evidence]:
    """Under load the driver says that application or locked clocks hold the board below its maximum.

    Silent at idle, and where the clocks set are the board's own defaults.
    """
    for board in boards(machine):
        now, most = board.clock_sm_mhz, board.clock_sm_max_mhz
        if not busy(board) or now is None or most is None or now >= 0.95 * most:
            continue
        default = board.clock_application_mhz is not None and (
            board.clock_application_mhz == board.clock_application_default_mhz
        )
        if "applications_clocks_setting" in (board.throttle_reasons or ()) and not default:
            yield Evidence(where=place(board), what="SM clock under load", seen=f"{now} MHz", wanted=f"{most} MHz")


@rule(
    "GPU012",
    "memory-held-by-nobody",
    Severity.WARNING,
    why="a dead process still holds memory that the next job will miss",
    fix=(
        Fix("look for processes that nvidia-smi does not show, and end those of yours", "fuser -v /dev/nvidia*"),
        RESET,
    ),
    confirm="nvidia-smi; fuser -v /dev/nvidia*",
    source=f"{NVML}, nvmlDeviceGetMemoryInfo_v2 (the part the driver reserves is counted apart)",
)
def memory_held_by_nobody(machine: Snapshot) -> Iterator[Evidence]:
    """More than 300 MiB are in use on a board without any process.

    Silent where processes may be there and not be seen: in containers and on WSL, under MIG, without a list of
    processes, without root, and where the driver does not count its own part apart (NVML's first memory call).
    """
    if machine.container is None or machine.container.kind is not None:
        return
    if machine.host is None or machine.host.wsl or (machine.gpus is not None and "processes" in machine.gpus.unread):
        return
    for board in boards(machine):
        if board.mig_mode or board.processes is None or board.processes or board.memory_reserved_bytes is None:
            continue
        if board.memory_used_bytes is not None and board.memory_used_bytes > HELD_BY_NOBODY:
            yield Evidence(
                where=place(board),
                what="memory in use without a process",
                seen=size(board.memory_used_bytes),
                wanted=f"at most {size(HELD_BY_NOBODY)}",
                confidence="likely",
            )


@rule(
    "GPU013",
    "busy-gpu",
    Severity.WARNING,
    why="another job takes memory and time of this GPU, and of every job that waits for it",
    fix=Fix(
        "choose free GPUs, or end what is left over",
        "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
    ),
    confirm="nvidia-smi",
    source=f"{NVML}, nvmlDeviceGetComputeRunningProcesses",
)
def busy_gpu(machine: Snapshot) -> Iterator[Evidence]:
    """Compute processes hold memory on a GPU that a job started here will use.

    Silent for processes that hold nothing (peer contexts) or an unknown amount, for MPS, for graphics, and for GPUs
    that CUDA_VISIBLE_DEVICES leaves out.
    """
    for board in used(machine):
        holders = [
            process
            for process in board.processes or ()
            if process.kind == "compute" and process.memory_bytes and "mps" not in (process.name or "")
        ]
        if holders:
            named = ", ".join(
                f"{item.name or 'pid'} {item.pid} ({size(item.memory_bytes or 0)})" for item in holders[:4]
            )
            more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
            yield Evidence(where=place(board), what="compute processes", seen=named + more, wanted="none")


@rule(
    "GPU014",
    "exclusive-compute-mode",
    Severity.WARNING,
    why="a second process on the GPU fails at its start: loader workers that touch CUDA, several ranks, a notebook",
    fix=Fix("set the mode back, unless the scheduler relies on it", "nvidia-smi -c DEFAULT", safety="needs root"),
    confirm="nvidia-smi -q -d COMPUTE",
    source=f"{NVML}, nvmlDeviceGetComputeMode",
)
def exclusive_compute_mode(machine: Snapshot) -> Iterator[Evidence]:
    """A GPU that a job here will use takes one process or none (then an error)."""
    for board in used(machine):
        if board.compute_mode not in {None, "default"}:
            severity = Severity.ERROR if board.compute_mode == "prohibited" else None
            yield Evidence(
                where=place(board),
                what="compute mode",
                seen=board.compute_mode or "",
                wanted="default",
                severity=severity,
            )


@rule(
    "GPU015",
    "mig-without-instance",
    Severity.ERROR,
    why="with MIG on and no instance made, CUDA sees no device on this board",
    fix=(
        Fix("make an instance", "nvidia-smi mig -cgi 0 -C", safety="needs root"),
        Fix("or switch MIG off", "nvidia-smi -mig 0", safety="needs root"),
    ),
    confirm="nvidia-smi -L",
    source="NVIDIA Multi-Instance GPU user guide",
)
def mig_without_instance(machine: Snapshot) -> Iterator[Evidence]:
    """MIG is on and NVML lists no instance of the board.

    Silent in containers, which see the instances given to them alone and may have been given another board's, and where
    a pasted text does not list instances.
    """
    if machine.gpus is None or machine.gpus.source != "nvml":
        return
    inside = machine.container is None or machine.container.kind is not None
    if inside and any(board.mig_instances for board in boards(machine)):
        return
    for board in boards(machine):
        if board.mig_mode and not board.mig_instances:
            yield Evidence(where=place(board), what="MIG instances", seen="none", wanted="one at least")


@rule(
    "GPU016",
    "mixed-gpus",
    Severity.WARNING,
    why="in one job the slowest model sets the pace, and the smallest memory the batch size",
    fix=Fix("keep the job on GPUs of one model", "export CUDA_VISIBLE_DEVICES=INDICES"),
    confirm="nvidia-smi -L",
    source=f"{NVML}, nvmlDeviceGetName",
)
def mixed_gpus(machine: Snapshot) -> Iterator[Evidence]:
    """The GPUs that a job started here will use are of several models, or torch warns that they are unequal.

    An info where one GPU of each is a plausible desktop (a display card beside a large one): a job of one GPU does not
    mind, and nothing says that there will be a larger one.
    """
    for text in machine.told("unequal_gpus"):
        weak, strong = text.numbers["weak"], text.numbers["strong"]
        seen = f"GPU {weak} has less than 75 % of the memory or cores of GPU {strong}"
        yield Evidence(where=f"GPU {weak}", what="boards", seen=seen, wanted="one model")
    names: dict[str, list[int]] = {}
    for board in used(machine):
        if board.name:
            names.setdefault(board.name, []).append(board.index)
    if len(names) < 2:
        return
    seen = "; ".join(f"{name}: GPU {', '.join(map(str, indices))}" for name, indices in names.items())
    pairs = max(len(indices) for indices in names.values()) > 1
    launched = machine.environment is not None and machine.environment.launched
    severity = None if pairs or launched else Severity.INFO
    yield Evidence(what="models", seen=seen, wanted="one model", severity=severity)


@rule(
    "GPU017",
    "gpus-missing",
    Severity.ERROR,
    why="the job starts with fewer ranks than planned, or does not start",
    fix=Fix("look for a lost board, or a container that was given fewer", "nvidia-smi -L; dmesg | grep -i nvrm"),
    confirm="nvidia-smi -L",
    source="the policy's own expectation",
    because=("DRV001", "DRV002", "DRV007", "DRV011", "CTR001", "GPU007", "ENV001"),
)
def gpus_missing(machine: Snapshot) -> Iterator[Evidence]:
    """Fewer GPUs than the policy wants, or of another model."""
    expected, seen = machine.expected, machine.gpu_count()
    if expected.gpus is not None and seen is not None and seen < expected.gpus:
        yield Evidence(what="GPUs", seen=str(seen), wanted=str(expected.gpus), source="policy")
    if expected.gpu is not None:
        for board in used(machine):
            if board.name and expected.gpu.lower() not in board.name.lower():
                yield Evidence(where=place(board), what="model", seen=board.name, wanted=expected.gpu, source="policy")


@rule(
    "GPU018",
    "recovery-action",
    Severity.ERROR,
    why="the driver itself asks for this before the board is used again",
    fix=RESET,
    confirm="nvidia-smi -q | grep -A1 'GPU Recovery Action'",
    source=f"{NVML}, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (driver r570 and newer)",
)
def recovery_action(machine: Snapshot) -> Iterator[Evidence]:
    """NVML asks for a reset, a reboot or a drain."""
    for board in boards(machine):
        if board.recovery_action not in {None, "none"}:
            yield Evidence(where=place(board), what="recovery action", seen=board.recovery_action or "", wanted="none")


@rule(
    "GPU019",
    "ecc-off",
    Severity.INFO,
    why="memory errors are not seen: a wrong bit goes into the weights",
    fix=Fix("switch it on; takes effect after a reset", "nvidia-smi -e 1", safety="needs root"),
    confirm="nvidia-smi -q -d ECC",
    source=f"{NVML}, nvmlDeviceGetEccMode",
)
def ecc_off(machine: Snapshot) -> Iterator[Evidence]:
    """A board that has ECC has it switched off.

    Silent for GeForce boards, which are sold with it off or without.
    """
    for board in boards(machine):
        if board.ecc_mode is False and "GeForce" not in (board.name or ""):
            yield Evidence(where=place(board), what="ECC", seen="off", wanted="on")


@rule(
    "GPU020",
    "persistence-off",
    Severity.INFO,
    why="the driver unloads when nobody uses the GPU: the next start takes seconds longer, and counters are lost",
    fix=Fix("run the persistence daemon", "systemctl enable --now nvidia-persistenced", safety="needs root"),
    confirm="nvidia-smi -q | grep Persistence",
    source="NVIDIA driver persistence documentation",
)
def persistence_off(machine: Snapshot) -> Iterator[Evidence]:
    """Persistence mode is off.

    Silent on WSL and Windows, which have none, and in containers, where the host decides.
    """
    if machine.host is None or machine.host.wsl or machine.host.system != "Linux":
        return
    if machine.container is None or machine.container.kind is not None:
        return
    off = [str(board.index) for board in boards(machine) if board.persistence_mode is False]
    if off:
        yield Evidence(where=f"GPU {', '.join(off)}", what="persistence mode", seen="off", wanted="on")


@rule(
    "GPU021",
    "inforom-corrupt",
    Severity.WARNING,
    why="the board's own records (ECC counts, serial number, power limits) can no longer be trusted",
    fix=Fix("ask the vendor: the board's InfoROM has to be written anew", safety="destructive"),
    confirm="nvidia-smi -q | grep -i inforom",
    source=f"{NVML}, nvmlDeviceValidateInforom",
)
def inforom_corrupt(machine: Snapshot) -> Iterator[Evidence]:
    """NVML finds the checksum of the InfoROM wrong."""
    for _, where in _where(machine, "inforom_corrupt"):
        yield Evidence(where=where, what="InfoROM", seen="corrupt", wanted="valid")


@rule(
    "GPU022",
    "at-power-limit",
    Severity.INFO,
    why="the board runs as fast as its power limit lets it, which is normal under full load",
    fix=Fix("nothing to do, unless the limit was lowered (GPU010)"),
    confirm="nvidia-smi -q -d PERFORMANCE,POWER",
    source=f"{NVML}, nvmlClocksEventReasons, SwPowerCap",
    because=("GPU010",),
)
def at_power_limit(machine: Snapshot) -> Iterator[Evidence]:
    """The software power cap is active."""
    for board in boards(machine):
        if "sw_power_cap" in (board.throttle_reasons or ()):
            watts = f"{board.power_w:.0f} W" if board.power_w is not None else "the limit"
            yield Evidence(where=place(board), what="power", seen=watts, wanted="below the limit")


RULES: tuple[Rule[Snapshot], ...] = (
    uncorrectable_ecc,
    row_remap_pending,
    row_remap_failed,
    retired_page_pending,
    gpu_lost,
    hardware_slowdown,
    thermal_slowdown,
    power_limit_lowered,
    clocks_capped,
    memory_held_by_nobody,
    busy_gpu,
    exclusive_compute_mode,
    mig_without_instance,
    mixed_gpus,
    gpus_missing,
    recovery_action,
    ecc_off,
    persistence_off,
    inforom_corrupt,
    at_power_limit,
)
