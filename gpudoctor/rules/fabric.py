"""Rules on the NVSwitch fabric, which has to be set up before CUDA starts."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cuda as look
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import cuda


@rule(
    "DRV009",
    "fabric-not-ready",
    Severity.ERROR,
    why="on NVSwitch systems CUDA starts only after the fabric manager has set up the fabric (error 802 until then)",
    fix=(
        Fix(
            "start the fabric manager, then wait until the state is Completed",
            "sudo systemctl restart nvidia-fabricmanager",
            safety="needs root",
        ),
        Fix("install it in the driver's own version; on a rented machine this is the provider's to do"),
    ),
    confirm="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 4 Fabric",
    source="NVIDIA Fabric Manager user guide; CUDA runtime API reference, cudaErrorSystemNotReady",
    because=("DRV002", "GPU007"),
)
def fabric_not_ready(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA starts with error 802, NVML's fabric state is not completed on a system of several boards, or, where there
    are NVSwitches, the fabric manager does not run (a warning where CUDA starts) or is not of the driver's version.

    Silent for state N/A or not supported, for one board alone, and where the host's processes cannot be seen.
    """
    code = look.start_error(machine)
    if code == look.SYSTEM_NOT_READY:
        yield Evidence(what="CUDA's start", seen=cuda.error(code), wanted="no error")
    boards = machine.gpus.boards if machine.gpus is not None else ()
    switches = machine.topology.nvswitches if machine.topology is not None else None
    waiting = [gpu for gpu in boards if gpu.fabric_state in {"not_started", "in_progress"}]
    if waiting and (switches or len(boards) > 1) and code != 0:
        states = ", ".join(f"GPU {gpu.index} {(gpu.fabric_state or '').replace('_', ' ')}" for gpu in waiting)
        yield Evidence(what="fabric state", seen=states, wanted="completed on every GPU")
    driver = machine.driver
    if driver is None or not switches:
        return
    if driver.fabric_manager_running is False:
        # With NVLink switched off in the driver, CUDA starts without it; and it may have died after its work was done.
        yield Evidence(
            what="fabric manager",
            seen="not running" + (", though CUDA starts" if code == 0 else ""),
            wanted=f"running, for {switches} NVSwitches",
            severity=Severity.WARNING if code == 0 else None,
        )
    module, manager = driver.module_version or driver.library_version, driver.fabric_manager_version
    if module is not None and manager is not None and not look.same(module, manager):
        yield Evidence(what="fabric manager", seen=f"version {manager}", wanted=f"{module}, as the driver")


@rule(
    "DRV013",
    "fabric-unhealthy",
    Severity.ERROR,
    why="the board has joined the fabric but its routes are broken: NVLink traffic stalls or fails in mid-job",
    fix=(
        Fix("drain the node and reset its GPUs", "sudo nvidia-smi --gpu-reset", safety="destructive"),
        Fix("if it comes back, have trays, cables and switches looked at; the health lines name the part"),
    ),
    confirm="nvidia-smi -q | grep -A 12 Fabric",
    source="NVML API reference, nvmlGpuFabricInfo_v3_t, healthSummary",
    because=("DRV009",),
)
def fabric_unhealthy(machine: Snapshot) -> Iterator[Evidence]:
    """NVML's health summary of the fabric is unhealthy although its state is completed; limited capacity is a warning.

    Silent where the driver has no summary, and while the fabric is still being set up.
    """
    for gpu in machine.gpus.boards if machine.gpus is not None else ():
        if gpu.fabric_health in {"unhealthy", "limited_capacity"} and gpu.fabric_state in {None, "completed"}:
            yield Evidence(
                where=f"GPU {gpu.index}",
                what="fabric health",
                seen=gpu.fabric_health.replace("_", " "),
                wanted="healthy",
                severity=None if gpu.fabric_health == "unhealthy" else Severity.WARNING,
            )


RULES: tuple[Rule[Snapshot], ...] = (fabric_not_ready, fabric_unhealthy)
