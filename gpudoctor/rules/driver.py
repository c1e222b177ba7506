"""Rules on the NVIDIA driver: is it there, does it fit together, is it new enough."""

from collections.abc import Iterator

from gpudoctor.facts.driver import Driver
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cuda as look
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import cuda


@rule(
    "DRV001",
    "no-nvidia-driver",
    Severity.ERROR,
    why="torch is built for CUDA and finds no driver: every job runs on the CPU or ends at its first CUDA call",
    fix=(
        Fix("load the kernel module if the driver is installed", "sudo modprobe nvidia", safety="needs root"),
        Fix("else install the driver of your distribution, and reboot", safety="needs root"),
    ),
    confirm="nvidia-smi; ls -l /dev/nvidiactl; lspci -d 10de:",
    source="CUDA installation guide for Linux, verification of the driver",
    because=("CTR001", "CTR006", "DRV011"),
)
def no_nvidia_driver(machine: Snapshot) -> Iterator[Evidence]:
    """A CUDA build of torch (or a policy that wants GPUs), and neither NVML nor /dev/nvidiactl.

    Silent in containers, whose devices may be hidden (CTR001), on macOS and Jetson, with torch for ROCm or the CPU,
    and where the policy says cpu.
    """
    driver = machine.driver
    if driver is None or not look.wanted(machine) or look.unwanted(machine) or look.in_container(machine):
        return
    if not look.nvml_missing(machine) or look.has_node(driver, "nvidiactl") or driver.module_version or driver.tegra:
        return
    boards = "" if driver.pci_gpus is None else f"; {driver.pci_gpus or 'no'} NVIDIA GPU on the PCI bus"
    nodes = "" if driver.device_nodes is None else ", no /dev/nvidiactl"
    yield Evidence(
        what="driver",
        seen=f"NVML: {driver.nvml_error}{nodes}{boards}",
        wanted="a loaded driver" if driver.pci_gpus != 0 else "a GPU and its driver, or torch's CPU build",
        confidence="likely" if driver.device_nodes is None else "certain",
        fix=_WSL if look.on_wsl(machine) else _NO_BOARD if driver.pci_gpus == 0 else (),
    )


_WSL = (Fix("install or update the NVIDIA driver in Windows; inside WSL install none", safety="restarts"),)
_NO_BOARD = (
    Fix("this machine shows no NVIDIA GPU: run on a node that has one, or check that the board is seated and powered"),
    Fix('if it is to train on the CPU, say device = "cpu" in the policy, or install torch\'s CPU build'),
)


@rule(
    "DRV002",
    "driver-library-mismatch",
    Severity.ERROR,
    why="the libraries were updated under a running kernel module: every new CUDA process fails until they agree",
    fix=(
        Fix("reboot, or unload and load the nvidia modules with no process using them", "sudo reboot", "restarts"),
        Fix(
            "so that it does not come back, hold the packages (Debian, Ubuntu)",
            "sudo apt-mark hold 'nvidia-driver-*' 'libnvidia-*'",
            safety="needs root",
        ),
    ),
    confirm="cat /proc/driver/nvidia/version; nvidia-smi",
    source="NVML API reference, NVML_ERROR_LIB_RM_VERSION_MISMATCH",
)
def driver_library_mismatch(machine: Snapshot) -> Iterator[Evidence]:
    """The kernel module and the user-space library are of different driver versions (NVML error 18).

    Silent where NVML starts, which it only does on its own module, whatever the kernel log says of the past.
    """
    driver = machine.driver or Driver()
    said = driver.nvml_error_code == look.NVML_MISMATCH or "version mismatch" in (driver.nvml_error or "").lower()
    refused = driver.nvml_error is not None
    # An NVML that starts, or that is not there at all (a container beside), has nothing to do with an old line.
    apart = driver.nvml_error_code in {look.NVML_NOT_LOADED, look.NVML_NO_LIBRARY} or (
        driver.library_version is not None and not refused
    )
    lines = machine.kernel_log.nvrm_errors if machine.kernel_log is not None else ()
    logged = next((line for line in lines if "API mismatch" in line), None)
    module, library = driver.module_version, driver.library_version
    differ = bool(module and library and not look.same(module, library))
    # A library without NVML's word may be a stray one of an image (DRV006), unless the module complains of it.
    if not (said or (logged and not apart) or (differ and not refused)):
        return
    seen = [f"module {module}" if module else "", f"library {library}" if library and differ else "", logged or ""]
    yield Evidence(
        what="kernel module and library",
        seen=", ".join(part for part in (*seen, driver.nvml_error or "") if part),
        wanted="one version",
        confidence="certain" if said or (logged and refused) else "likely",
    )


@rule(
    "DRV003",
    "driver-too-old",
    Severity.ERROR,
    why="the driver knows nothing of this CUDA generation: CUDA does not start and torch sees no GPU",
    fix=(
        Fix("update the driver (in a container: the host's)", safety="needs root"),
        Fix("or install a build of torch for an older CUDA: cu126 and cu128 want driver 525.60.13, cu118 450.80.02"),
    ),
    confirm='nvidia-smi; python -c "import torch; print(torch.version.cuda)"',
    source="CUDA compatibility guide, minor-version compatibility",
    because=("DRV002", "DRV006"),
)
def driver_too_old(machine: Snapshot) -> Iterator[Evidence]:
    """The driver is below the lowest one that runs any program of torch's CUDA major, and no cuda-compat helps.

    Silent for cu128 on driver 535: within a major version older drivers run newer builds (DRV004). On WSL and Windows,
    whose drivers are numbered otherwise, the CUDA version of the driver decides.
    """
    driver, built = machine.driver, look.torch_cuda(machine)
    if driver is None or look.start_error(machine) == 0:
        return
    floor = cuda.min_driver(built) if built else None
    version = driver.module_version or driver.library_version
    refused = look.start_error(machine) == look.INSUFFICIENT_DRIVER and bool(version or driver.cuda_version)
    if not _below(machine, version, built) and not (refused and floor is None):
        return
    seen = [version, f"CUDA {driver.cuda_version} at most" if driver.cuda_version else None]
    seen.append(cuda.error(look.INSUFFICIENT_DRIVER) if refused else None)
    yield Evidence(
        what="driver",
        seen=", ".join(part for part in seen if part),
        wanted=f"{floor} or newer for torch built with CUDA {built}" if floor else "one as new as torch's CUDA",
    )


def _below(machine: Snapshot, version: str | None, built: str | None) -> bool:
    """False where anything is unknown."""
    driver, floor = machine.driver, cuda.min_driver(built) if built else None
    if driver is None or built is None or floor is None:
        return False
    if driver.compat_version and cuda.numbers(driver.compat_version) >= cuda.numbers(floor):
        return False
    if look.on_wsl(machine) or (machine.host is not None and machine.host.system == "Windows"):
        return bool(driver.cuda_version) and cuda.numbers(driver.cuda_version or "")[:1] < cuda.numbers(built)[:1]
    if version is None:
        return False
    # The first toolkit of a major runs on its own driver, below what minor-version compatibility asks: 11.0, 450.51.
    toolkit = cuda.toolkit(built)
    own = toolkit.driver if toolkit is not None and toolkit.driver else floor
    return cuda.numbers(version) < min(cuda.numbers(floor), cuda.numbers(own))


@rule(
    "DRV004",
    "driver-below-toolkit",
    Severity.INFO,
    why="torch's own kernels run, but PTX made by a newer toolkit (extensions, some Triton kernels) ends in error 222",
    fix=Fix("update the driver when there is an occasion; until then build extensions for the exact architecture"),
    confirm='nvidia-smi; python -c "import torch; print(torch.version.cuda)"',
    source="CUDA compatibility guide, minor-version compatibility",
    because=("DRV003",),
)
def driver_below_toolkit(machine: Snapshot) -> Iterator[Evidence]:
    """The driver is older than torch's CUDA within one major: minor-version compatibility makes it work. An error where
    PTX was refused for it.

    Silent where cuda-compat or a newer driver gives the full CUDA, and across majors (DRV003).
    """
    for text in machine.told("ptx_unsupported"):
        yield Evidence(
            what="PTX",
            seen=f"{cuda.error(222)}: {text.words['reason']}",
            wanted="PTX that this driver can compile, or code for the card itself",
            severity=Severity.ERROR,
        )
    driver, built = machine.driver, look.torch_cuda(machine)
    if driver is None or built is None:
        return
    version = driver.module_version or driver.library_version
    if driver.cuda_version is not None:
        offered, needed = cuda.numbers(driver.cuda_version)[:2], cuda.numbers(built)[:2]
        behind = offered[:1] == needed[:1] and offered < needed
    else:
        toolkit = cuda.toolkit(built)
        usable = driver.compat_version or version
        older = usable and toolkit and toolkit.driver and cuda.numbers(usable) < cuda.numbers(toolkit.driver)
        behind = bool(older) and not _below(machine, version, built)
    if behind:
        yield Evidence(
            what="driver",
            seen=f"{version or 'a driver'}" + (f" (CUDA {driver.cuda_version})" if driver.cuda_version else ""),
            wanted=f"CUDA {built} or newer for all of torch's features",
        )


@rule(
    "DRV011",
    "nouveau-loaded",
    Severity.ERROR,
    why="nouveau holds the card, so NVIDIA's module cannot take it, and nouveau has no CUDA",
    fix=Fix(
        "keep it from loading, then reboot",
        "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
        safety="needs root",
    ),
    confirm="lsmod | grep nouveau",
    source="CUDA installation guide for Linux, disabling nouveau",
)
def nouveau_loaded(machine: Snapshot) -> Iterator[Evidence]:
    """The module nouveau is loaded and NVIDIA's is not.

    Silent where torch is built for something else than CUDA, or the policy trains elsewhere: a display needs no CUDA.
    """
    driver = machine.driver
    if driver is None or not driver.nouveau_loaded or driver.module_version is not None or look.unwanted(machine):
        return
    if driver.pci_gpus == 0 or (machine.gpus is not None and machine.gpus.boards):
        return
    yield Evidence(what="kernel modules", seen="nouveau", wanted="nvidia")


RULES: tuple[Rule[Snapshot], ...] = (
    no_nvidia_driver,
    driver_library_mismatch,
    driver_too_old,
    driver_below_toolkit,
    nouveau_loaded,
)
