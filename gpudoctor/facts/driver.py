"""The NVIDIA driver: kernel module, user libraries, device nodes."""

from gpudoctor.facts.base import Fact, Subject


class DeviceNode(Fact, frozen=True, kw_only=True):
    """One file under /dev the driver serves."""

    path: str
    exists: bool
    accessible: bool | None = None
    """Readable and writable by this user."""


class Driver(Subject, frozen=True, kw_only=True):
    """Everything here is read without CUDA."""

    module_version: str | None = None
    """Of the loaded kernel module (/proc/driver/nvidia/version); None where none is loaded."""
    module_open: bool | None = None
    """The open kernel module flavour is loaded."""
    library_version: str | None = None
    """Of the user-space libraries (NVML's driver version, else the suffix of libcuda.so.N)."""
    cuda_version: str | None = None
    """The newest CUDA the driver supports, `major.minor`."""
    nvml_error: str | None = None
    """NVML's words where it does not start, such as `Driver/library version mismatch`; where nvidia-smi is what was
    asked (pasted text), its words. None where NVML started, or was not asked: `library_version` tells which."""
    nvml_error_code: int | None = None
    """9 no driver loaded, 12 no library, 18 library and module differ, 999 unknown; None for pasted words."""
    nvidia_smi_path: str | None = None
    device_nodes: tuple[DeviceNode, ...] | None = None
    """nvidiactl, nvidia-uvm and nvidia0… (on WSL dxg); empty where /dev holds none.
    Boards without a node are left out."""
    nvidia_modprobe: bool | None = None
    """The helper that makes missing nodes for users (setuid root) is installed."""
    pci_gpus: int | None = None
    """NVIDIA display or 3D controllers on the PCI bus, whether a driver holds them or not; None on WSL."""
    uvm_loaded: bool | None = None
    nouveau_loaded: bool | None = None
    fabric_manager_running: bool | None = None
    """None where processes cannot be seen (containers)."""
    fabric_manager_version: str | None = None
    libcuda_paths: tuple[str, ...] | None = None
    """Every libcuda.so.1 the loader could pick, in its order of preference; empty where it finds none."""
    libcuda_version: str | None = None
    """Driver version in the name of the first one's file, such as `580.95.05`; None where the name has none (WSL)."""
    compat_path: str | None = None
    """cuda-compat's libcuda, where it comes first in the loader's order."""
    compat_version: str | None = None
    """Driver version of that cuda-compat, such as `575.57.08`."""
    stubs_in_library_path: str | None = None
    """A toolkit's stubs folder in LD_LIBRARY_PATH, whose libcuda does nothing."""
    tegra: bool | None = None
    """A Jetson: the GPU is part of the chip, without PCI, and older ones have neither NVML nor /dev/nvidiactl."""
    cuda_error: int | None = None
    """Number of the CUDA error that cuInit (or a pasted text) gave; 0 where it started."""
    cuda_error_text: str | None = None
