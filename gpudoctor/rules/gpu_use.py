"""Rules on whether the GPUs are there and free for a job: who holds them, in which mode, how many, of which models."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu, GpuProcess
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import RESET, boards, place, reset, used
from gpudoctor.rules.sizes import MIB, size
from gpudoctor.snapshot import Snapshot

NVML = "NVML API reference, Device Queries"
HELD_BY_NOBODY = 300 * MIB  # a bare CUDA context holds 545 MB on an H200 (measured 2026-11), a driver's rest less
DISPLAY_CARD = 0.25  # our bound: a card with less than this share of the largest one's memory drives a screen
MPS_SERVER = "nvidia-cuda-mps"  # its name in /proc, which holds 15 letters


@rule(
    "GPU012",
    "memory-held-by-nobody",
    Severity.WARNING,
    why="a dead process still holds memory that the next job will miss",
    fix=(
        Fix("look for processes that nvidia-smi does not show, and end those of yours", "sudo fuser -v /dev/nvidia*"),
        RESET,
    ),
    confirm="nvidia-smi; sudo fuser -v /dev/nvidia*",
    source=f"{NVML}, nvmlDeviceGetMemoryInfo_v2 (the part the driver reserves is counted apart); the bound is ours",
)
def memory_held_by_nobody(machine: Snapshot) -> Iterator[Evidence]:
    """More than 300 MiB are in use on a board without any process.

    Silent where a process may be there and not be seen: in containers and other process namespaces, on WSL, under MIG,
    where virtual machines share the board, and in pasted text; where memory of the board serves any program (Grace
    Hopper); and where the driver does not count its own part apart (NVML's first memory call).
    """
    if machine.gpus is None or machine.gpus.source != "nvml" or "processes" in machine.gpus.unread:
        return
    if machine.host is None or machine.host.wsl or machine.container is None or machine.container.kind is not None:
        return
    if machine.shm is not None and machine.shm.shared_unseen:
        return
    for board in boards(machine):
        if _shows_all(board) and (board.memory_used_bytes or 0) > HELD_BY_NOBODY:
            yield Evidence(
                where=place(board),
                what="memory in use without a process",
                seen=size(board.memory_used_bytes or 0),
                wanted=f"at most {size(HELD_BY_NOBODY)}",
                confidence="likely",
                fix=(memory_held_by_nobody.fix[0], reset(board)),
            )


def _shows_all(board: Gpu) -> bool:
    """It lists no process, and would list any; its memory is all accounted for."""
    alone = not board.mig_mode and board.virtualization in {None, "none", "passthrough"} and board.memory_node is None
    return alone and board.processes == () and board.memory_reserved_bytes is not None


@rule(
    "GPU013",
    "busy-gpu",
    Severity.WARNING,
    why="another job takes memory and time of this GPU, and of every job that waits for it",
    fix=Fix(
        "choose free GPUs, or end what is left over",
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
    ),
    confirm="nvidia-smi",
    source=f"{NVML}, nvmlDeviceGetComputeRunningProcesses",
)
def busy_gpu(machine: Snapshot) -> Iterator[Evidence]:
    """Compute processes of others hold memory on a GPU that a job started here will use.

    Silent for the check's own processes and the job that started it, for processes that hold nothing (peer contexts) or
    an unknown amount, for MPS' server, for graphics, for slices (MIG), for GPUs that CUDA_VISIBLE_DEVICES leaves out,
    and in pasted text, where the processes are the job itself.
    """
    if machine.gpus is None or machine.gpus.source != "nvml":
        return
    for board in used(machine):
        holders = [] if board.mig_mode else [process for process in board.processes or () if _is_others(process)]
        if holders:
            named = ", ".join(
                f"{item.name or 'pid'} {item.pid} ({size(item.memory_bytes or 0)})" for item in holders[:4]
            )
            more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
            yield Evidence(where=place(board), what="compute processes", seen=named + more, wanted="none")


def _is_others(process: GpuProcess) -> bool:
    if process.ours or process.kind != "compute" or MPS_SERVER in (process.name or ""):
        return False
    return bool(process.memory_bytes)


@rule(
    "GPU014",
    "exclusive-compute-mode",
    Severity.WARNING,
    why="a second process on the GPU fails at its start: loader workers that touch CUDA, several ranks, a notebook",
    fix=Fix("set the mode back, unless the scheduler relies on it", "sudo nvidia-smi -c DEFAULT", safety="needs root"),
    confirm="nvidia-smi -q -d COMPUTE",
    source=f"{NVML}, nvmlDeviceGetComputeMode",
)
def exclusive_compute_mode(machine: Snapshot) -> Iterator[Evidence]:
    """A GPU that a job here will use takes one process alone, or none.

    Silent under MPS, whose server is that one process.
    """
    for board in used(machine):
        shared = any(MPS_SERVER in (process.name or "") for process in board.processes or ())
        if board.compute_mode not in {None, "default"} and not shared:
            mode = (board.compute_mode or "").replace("_", " ")
            yield Evidence(where=place(board), what="compute mode", seen=mode, wanted="default")


@rule(
    "GPU015",
    "mig-without-instance",
    Severity.ERROR,
    why="with MIG on and no instance made, CUDA sees no device on this board",
    fix=(
        Fix("list what instances can be made, then make one", "nvidia-smi mig -lgip", safety="needs root"),
        Fix("or switch MIG off", "sudo nvidia-smi -mig 0", safety="destructive"),
    ),
    confirm="nvidia-smi -L",
    source="NVIDIA Multi-Instance GPU user guide",
)
def mig_without_instance(machine: Snapshot) -> Iterator[Evidence]:
    """MIG is on and NVML lists no instance, on a GPU that a job here would use.

    Silent in a container that has an instance, be it another board's, where instances could not be listed, and in
    pasted text, which need not list them.
    """
    if machine.gpus is None or machine.gpus.source != "nvml" or "mig_instances" in machine.gpus.unread:
        return
    inside = machine.container is None or machine.container.kind is not None
    if inside and any(board.mig_instances for board in boards(machine)):
        return
    for board in used(machine):
        if board.mig_mode and not board.mig_instances:
            yield Evidence(where=place(board), what="MIG instances", seen="none", wanted="one at least")


@rule(
    "GPU016",
    "mixed-gpus",
    Severity.WARNING,
    why="in one job the slowest model sets the pace, and the smallest memory the batch size",
    fix=Fix("keep the job on GPUs of one model: name them in CUDA_VISIBLE_DEVICES, by UUID", "nvidia-smi -L"),
    confirm="nvidia-smi -L",
    source=f"{NVML}, nvmlDeviceGetName",
)
def mixed_gpus(machine: Snapshot) -> Iterator[Evidence]:
    """The GPUs that a job started here will use are of several models, or torch warns that they are unequal.

    An info where there is one of each and nothing says that a job will take several. Silent about a card that drives a
    screen beside large ones, and for slices (MIG).
    """
    for text in machine.told("unequal_gpus"):
        weak, strong = text.numbers["weak"], text.numbers["strong"]
        told = f"GPU {weak} has less than 75 % of the memory or cores of GPU {strong}"
        yield Evidence(where=f"GPU {weak}", what="boards", seen=told, wanted="one model")
    seen = [board for board in used(machine) if board.name and not board.mig_mode]
    largest = max((board.memory_total_bytes or 0 for board in seen), default=0)
    names: dict[str, list[int]] = {}
    for board in seen:
        small = board.memory_total_bytes is not None and board.memory_total_bytes < DISPLAY_CARD * largest
        if not small and "Display" not in (board.name or ""):
            names.setdefault(board.name or "", []).append(board.index)
    if len(names) < 2:
        return
    told = "; ".join(f"{name}: GPU {', '.join(map(str, indices))}" for name, indices in names.items())
    several = max(len(indices) for indices in names.values()) > 1
    launched = machine.environment is not None and machine.environment.launched
    severity = None if several or launched else Severity.INFO
    yield Evidence(what="models", seen=told, wanted="one model", severity=severity)


@rule(
    "GPU017",
    "gpus-missing",
    Severity.ERROR,
    why="the job starts with fewer ranks than planned, or does not start",
    fix=Fix("look for a lost board, or a container that was given fewer", "nvidia-smi -L; sudo dmesg | grep -i nvrm"),
    confirm="nvidia-smi -L",
    source="the policy",
    because=("DRV001", "DRV002", "DRV007", "DRV011", "CTR001", "GPU007", "ENV001", "TOR001", "TOR002", "TOR003"),
)
def gpus_missing(machine: Snapshot) -> Iterator[Evidence]:
    """Fewer GPUs than the policy wants, lost ones not counted, or of another model.

    Silent where the policy wants none, and where nobody could count them.
    """
    expected, seen = machine.expected, machine.gpu_count()
    if seen is not None and (machine.torch_runtime is None or machine.torch_runtime.device_count is None):
        seen -= sum(board.lost for board in used(machine))
    if expected.gpus is not None and seen is not None and seen < expected.gpus:
        yield Evidence(what="GPUs", seen=str(seen), wanted=str(expected.gpus))
    for board in used(machine) if expected.gpu is not None else ():
        if board.name and (expected.gpu or "").lower() not in board.name.lower():
            yield Evidence(where=place(board), what="model", seen=board.name, wanted=expected.gpu or "")


RULES: tuple[Rule[Snapshot], ...] = (
    memory_held_by_nobody,
    busy_gpu,
    exclusive_compute_mode,
    mig_without_instance,
    mixed_gpus,
    gpus_missing,
)
