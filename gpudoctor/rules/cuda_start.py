"""Rules on what stands between a loaded driver and a CUDA that starts: libcuda, device nodes, modules."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cuda as look
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import cuda

NODE_ERRORS = (look.INITIALIZATION, look.NO_DEVICE, look.OPERATING_SYSTEM, look.UNKNOWN)
"""What CUDA says where it cannot open a device node."""


@rule(
    "DRV005",
    "compat-on-unsupported-gpu",
    Severity.ERROR,
    why="cuda-compat brings a newer CUDA to an older driver on data-center boards only; on others CUDA does not start",
    fix=(
        Fix(
            "take the compat folder out of LD_LIBRARY_PATH (in an image: out of its environment and /etc/ld.so.conf.d)"
        ),
        Fix("or update the driver, which makes cuda-compat needless", safety="needs root"),
    ),
    confirm="ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH",
    source="CUDA compatibility guide, forward compatibility",
)
def compat_on_unsupported_gpu(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA starts with error 804, or a GeForce board is driven through cuda-compat's libcuda.

    Silent where CUDA started, and for cuda-compat on data-center boards, where it is meant to be used.
    """
    driver, code = machine.driver, look.start_error(machine)
    boards = machine.gpus.boards if machine.gpus is not None else ()
    consumer = next((gpu.name for gpu in boards if gpu.name and ("GeForce" in gpu.name or "TITAN" in gpu.name)), None)
    path = driver.compat_path if driver is not None else None
    if code != look.COMPAT_NOT_SUPPORTED and not (code is None and path and consumer):
        return
    seen = [cuda.error(code) if code else None, path, consumer]
    yield Evidence(
        where=path or "",
        what="libcuda in use",
        seen=", ".join(part for part in seen if part),
        wanted="the driver's own",
        confidence="certain" if code else "likely",
    )


@rule(
    "DRV006",
    "stray-libcuda",
    Severity.ERROR,
    why="libcuda belongs to one driver version: with another one, or a linker's stub, CUDA does not start",
    fix=(
        Fix("take the folder out of LD_LIBRARY_PATH, and remove libcuda from the image: the driver brings it"),
        Fix("see which ones the loader knows", "ldconfig -p | grep libcuda"),
    ),
    confirm="ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH; cat /proc/driver/nvidia/version",
    source="CUDA runtime API reference, cudaErrorSystemDriverMismatch and cudaErrorStubLibrary",
    because=("DRV002", "DRV005"),
)
def stray_libcuda(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA starts with error 803 or 34, the first libcuda is of another version than the kernel module, or a stubs
    folder stands in LD_LIBRARY_PATH (a warning where CUDA starts all the same).

    Silent for cuda-compat, which is meant to differ, and for another version where CUDA started.
    """
    driver, code = machine.driver, look.start_error(machine)
    path = (driver.libcuda_paths or ("",))[0] if driver is not None else ""
    if code in {look.SYSTEM_DRIVER_MISMATCH, look.STUB_LIBRARY}:
        first = f", {path} comes first" if path else ""
        yield Evidence(where=path, what="CUDA's start", seen=cuda.error(code) + first, wanted="the driver's libcuda")
    elif code != 0 and driver is not None and driver.compat_path is None and look.other_libcuda(driver):
        yield Evidence(
            where=path,
            what="libcuda the loader picks",
            seen=f"version {driver.libcuda_version}",
            wanted=f"{driver.module_version}, as the kernel module",
            source="/proc/driver/nvidia/version",
            confidence="certain" if code else "likely",
        )
    if driver is not None and driver.stubs_in_library_path is not None:
        yield Evidence(
            where="LD_LIBRARY_PATH",
            what="stubs folder",
            seen=driver.stubs_in_library_path,
            wanted="none: stubs are for linking",
            severity=Severity.WARNING if code == 0 else None,
        )


@rule(
    "DRV007",
    "device-nodes-missing",
    Severity.ERROR,
    why="the driver is loaded, but programs reach it only through its files under /dev",
    fix=(
        Fix("make them", "sudo nvidia-modprobe -c 0 -u", safety="needs root"),
        Fix(
            "where they exist and are closed to this user, join the group they belong to (ls -l /dev/nvidia*)",
            safety="needs root",
        ),
    ),
    confirm="ls -l /dev/nvidia*",
    source="CUDA installation guide for Linux, device node verification",
    because=("CTR001", "DRV001", "DRV002"),
)
def device_nodes_missing(machine: Snapshot) -> Iterator[Evidence]:
    """The module is loaded; /dev/nvidiactl, every /dev/nvidia0… or /dev/nvidia-uvm is missing or closed to this user.

    Silent in containers (CTR001), on WSL and Jetson, and for an nvidia-uvm that nvidia-modprobe makes on first use
    while nothing says that CUDA fails.
    """
    driver = machine.driver
    if driver is None or driver.module_version is None or driver.device_nodes is None or driver.tegra:
        return
    if look.in_container(machine) is not False or look.on_wsl(machine) or driver.pci_gpus == 0:
        return
    if look.start_error(machine) == 0:
        return
    nodes = look.boards(driver)
    for name in ("nvidiactl", "nvidia-uvm"):
        found = look.node(driver, name)
        if found is None or not found.exists:
            made_later = name == "nvidia-uvm" and driver.nvidia_modprobe is not False
            if not made_later or look.start_error(machine) in NODE_ERRORS:
                yield Evidence(where=f"/dev/{name}", what="device node", seen="missing", wanted="there")
        elif found.accessible is False:
            yield Evidence(where=f"/dev/{name}", what="device node", seen="no permission", wanted="readable, writable")
    if not nodes:
        yield Evidence(where="/dev/nvidia0", what="device node", seen="missing", wanted="one for each GPU")
    elif all(node.accessible is False for node in nodes):
        yield Evidence(
            where=nodes[0].path, what="device nodes of all GPUs", seen="no permission", wanted="readable, writable"
        )


@rule(
    "DRV008",
    "uvm-unusable",
    Severity.ERROR,
    why="CUDA needs the module nvidia_uvm, which can break when the machine sleeps; every CUDA start then fails",
    fix=(
        Fix(
            "end the processes that use CUDA and reload it (CUDA_VISIBLE_DEVICES, which the message names, is not it)",
            "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
            safety="needs root",
        ),
        Fix("where it is in use and does not unload", "sudo reboot", safety="restarts"),
    ),
    confirm="ls -l /dev/nvidia-uvm; lsmod | grep nvidia_uvm",
    source="CUDA runtime API reference, cudaErrorUnknown; PyTorch forum and issue reports of error 999 after suspend",
    because=("DRV002", "DRV007", "DRV010", "GPU007", "GPU005", "CTR001"),
)
def uvm_unusable(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA starts with error 999 although the device nodes are there (or nobody looked).

    Silent where nvidia-uvm is missing, which is DRV007's or CTR001's.
    """
    driver = machine.driver
    if look.start_error(machine) != look.UNKNOWN:
        return
    if driver is not None and driver.device_nodes is not None and not look.has_node(driver, "nvidia-uvm"):
        return
    loaded = driver.uvm_loaded if driver is not None else None
    module = "" if loaded is None else f", nvidia_uvm {'loaded' if loaded else 'not loaded'}"
    yield Evidence(
        what="CUDA's start",
        seen=cuda.error(look.UNKNOWN) + module,
        wanted="no error",
        confidence="certain" if loaded is False else "likely",
    )


@rule(
    "DRV010",
    "nvml-lost",
    Severity.ERROR,
    why="a reload of systemd on the host took the container's right to the GPUs away: the next CUDA start fails",
    fix=(
        Fix("restart the container", safety="restarts"),
        Fix(
            "so that it does not come back, name the devices at its start: --device nvidia.com/gpu=all (CDI), "
            "or one --device for each of /dev/nvidia*",
            safety="restarts",
        ),
    ),
    confirm="nvidia-smi",
    source="NVIDIA Container Toolkit documentation, troubleshooting, containers losing access to GPUs",
)
def nvml_lost(machine: Snapshot) -> Iterator[Evidence]:
    """NVML fails with "Unknown Error" in a container whose GPU devices are there.

    Silent outside containers, and for an unknown error of one board alone (GPU007).
    """
    driver = machine.driver
    if driver is None or look.in_container(machine) is False or look.start_error(machine) == 0:
        return
    words = (driver.nvml_error or "").lower()
    if driver.nvml_error_code != look.NVML_UNKNOWN and ("unknown error" not in words or "handle" in words):
        return
    if driver.device_nodes is not None and not look.boards(driver):
        return
    control = look.node(driver, "nvidiactl")
    denied = control is not None and control.accessible is False
    yield Evidence(
        what="NVML",
        seen=f"{driver.nvml_error or 'Unknown Error'}" + (", /dev/nvidiactl may not be opened" if denied else ""),
        wanted="the GPUs this container was given",
        confidence="certain" if denied else "likely",
    )


@rule(
    "DRV012",
    "no-such-device",
    Severity.ERROR,
    why="the driver answers and shows CUDA no GPU, so no job can use one",
    fix=(
        Fix("see what the driver says of the board", "sudo dmesg | grep NVRM", safety="needs root"),
        Fix("if a board is listed by nvidia-smi, look at CUDA_VISIBLE_DEVICES and at MIG instances", "nvidia-smi -L"),
    ),
    confirm="nvidia-smi -L; ldconfig -p | grep libcuda",
    source="CUDA runtime API reference, cudaErrorNoDevice and cudaErrorInvalidDevice",
    because=("DRV001", "DRV002", "DRV006", "DRV007", "DRV011", "CTR001", "ENV001", "GPU007", "GPU015", "GPU018"),
)
def no_such_device(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA starts with error 100 or 101 with a driver present; on WSL a Linux libcuda hides that of Windows.

    Silent where there is no driver (DRV001), and where CUDA_VISIBLE_DEVICES is set to hide every GPU.
    """
    driver, code = machine.driver, look.start_error(machine)
    wsl = look.on_wsl(machine) and driver is not None and bool(driver.libcuda_paths)
    shadowed = wsl and driver is not None and not (driver.libcuda_paths or ("",))[0].startswith("/usr/lib/wsl/")
    if code not in {look.NO_DEVICE, look.INVALID_DEVICE} and not (shadowed and code is None):
        return
    if look.nvml_missing(machine) and not shadowed:
        return
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES") if machine.environment is not None else None
    if visible is not None and visible.strip() in {"", "-1", "NoDevFiles"}:
        return
    if shadowed and driver is not None:
        yield Evidence(
            where=(driver.libcuda_paths or ("",))[0],
            what="libcuda the loader picks",
            seen=f"a Linux driver's{', ' + cuda.error(code) if code else ''}",
            wanted="/usr/lib/wsl/lib/libcuda.so.1",
            confidence="certain" if code else "likely",
            fix=(Fix("remove the Linux driver's packages from WSL: Windows brings the driver", safety="needs root"),),
        )
    elif code is not None:
        lines = machine.kernel_log.nvrm_errors if machine.kernel_log is not None else ()
        said = next((line for line in lines if "API mismatch" not in line), None)
        yield Evidence(
            what="CUDA's start", seen=cuda.error(code) + (f"; kernel log: {said}" if said else ""), wanted="a GPU"
        )


RULES: tuple[Rule[Snapshot], ...] = (
    compat_on_unsupported_gpu,
    stray_libcuda,
    device_nodes_missing,
    uvm_unusable,
    nvml_lost,
    no_such_device,
)
