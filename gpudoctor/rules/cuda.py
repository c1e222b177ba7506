"""What several rules ask of a machine: is CUDA wanted here, did it start, is there a driver at all."""

from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables.cuda import numbers

NVML_NOT_LOADED, NVML_NO_LIBRARY, NVML_MISMATCH, NVML_UNKNOWN = 9, 12, 18, 999
INITIALIZATION, STUB_LIBRARY, INSUFFICIENT_DRIVER, NO_DEVICE, INVALID_DEVICE, OPERATING_SYSTEM = (
    3,
    34,
    35,
    100,
    101,
    304,
)
SYSTEM_NOT_READY, SYSTEM_DRIVER_MISMATCH, COMPAT_NOT_SUPPORTED, UNKNOWN = 802, 803, 804, 999


def wanted(machine: Snapshot) -> bool:
    """Jobs here train on NVIDIA GPUs: the policy says so, or, where it is silent, torch is built for CUDA."""
    if machine.expected.device is not None:
        return machine.expected.device == "cuda"
    if machine.expected.gpus or machine.expected.gpu or torch_build(machine) == "cuda":
        return True
    if "nvidia-container-cli" in ((machine.container.runtime_error if machine.container is not None else None) or ""):
        return True  # a container that was asked to have GPUs
    # Of a torch whose build is not in sight (pasted text): only a build for CUDA says so.
    return machine.torch_runtime is not None and "NVIDIA driver" in (machine.torch_runtime.cuda_error or "")


def unwanted(machine: Snapshot) -> bool:
    """Jobs here do not train on NVIDIA GPUs: by the policy, by torch's build, or since no such driver exists."""
    if machine.host is not None and machine.host.system == "Darwin":
        return True
    if machine.expected.device is not None:
        return machine.expected.device != "cuda"
    return torch_build(machine) not in {None, "cuda"} and not (machine.expected.gpus or machine.expected.gpu)


def torch_build(machine: Snapshot) -> str | None:
    """`cuda`, `cpu`, `rocm`, …; None where there is no torch to be seen."""
    if machine.torch is not None and machine.torch.build is not None:
        return machine.torch.build
    if machine.torch is not None and machine.torch.rocm:
        return "rocm"
    return "cuda" if torch_cuda(machine) else None


def torch_cuda(machine: Snapshot) -> str | None:
    """The CUDA torch is built for, such as `12.8`."""
    found = machine.torch.cuda if machine.torch is not None else None
    return found or (machine.torch_runtime.cuda if machine.torch_runtime is not None else None)


def start_error(machine: Snapshot) -> int | None:
    """Number of the error CUDA's start gave; 0 where it started; None where nobody tried."""
    runtime = machine.torch_runtime
    if runtime is not None and runtime.cuda_available:
        return 0
    if runtime is not None and runtime.cuda_error_code:
        return runtime.cuda_error_code
    return machine.driver.cuda_error if machine.driver is not None else None


def in_container(machine: Snapshot) -> bool | None:
    """None where that was not read."""
    return None if machine.container is None else machine.container.kind is not None


def on_wsl(machine: Snapshot) -> bool:
    return machine.host is not None and bool(machine.host.wsl)


def node(driver: Driver, name: str) -> DeviceNode | None:
    """None where it is not listed, which a driver without any node leaves out too."""
    return next((node for node in driver.device_nodes or () if node.path == f"/dev/{name}"), None)


def has_node(driver: Driver, name: str) -> bool:
    return (found := node(driver, name)) is not None and found.exists


def boards(driver: Driver) -> tuple[DeviceNode, ...]:
    """Nodes that stand for a GPU: nvidia0, nvidia1, … and on WSL dxg."""
    nodes = [node for node in driver.device_nodes or () if node.exists]
    return tuple(node for node in nodes if node.path == "/dev/dxg" or node.path[len("/dev/nvidia") :].isdecimal())


def nvml_missing(machine: Snapshot) -> bool:
    """NVML (or nvidia-smi) was asked and found no driver. Its other errors speak of a driver in trouble."""
    driver = machine.driver
    if driver is None or driver.nvml_error is None or start_error(machine) == 0:
        return False
    if machine.gpus is not None and machine.gpus.boards:
        return False
    words = driver.nvml_error.lower()
    return driver.nvml_error_code in {NVML_NOT_LOADED, NVML_NO_LIBRARY} or (
        driver.nvml_error_code is None and "mismatch" not in words and "unknown error" not in words
    )


def same(one: str, other: str) -> bool:
    """The same driver, as far as both are told: nvidia-smi cuts 570.133.07 to 570.133."""
    first, second = numbers(one), numbers(other)
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def other_libcuda(driver: Driver) -> bool:
    """The libcuda the loader picks bears another version than the kernel module; False where either is unknown."""
    module, library = driver.module_version, driver.libcuda_version
    return module is not None and library is not None and not same(module, library)
