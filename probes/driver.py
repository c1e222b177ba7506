"""Read the NVIDIA driver: kernel module, user libraries, device nodes. Starts NVML, never CUDA."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.probes import nvml
from gpudoctor.probes.libcuda import libcuda
from gpudoctor.probes.system import NotRead, System

NVML_DEADLINE_S = 3.0
"""Below the probe's own, so that a driver that hangs costs these answers alone."""

NVIDIA = "0x10de"
DISPLAY, CONTROLLER_3D, BRIDGE = "0x0300", "0x0302", "0x0680"
"""First half of a PCI class; NVSwitches are bridges of the class `other`."""

VERSION = re.compile(r"\b\d{3}\.\d+(?:\.\d+)?\b")


def read(system: System) -> Driver:
    """All of it works without root. Raises NotRead on macOS, for which there is no driver."""
    if system.live and sys.platform == "darwin":
        raise NotRead("there is no NVIDIA driver for macOS")
    unread: dict[str, str] = {}
    version, flavour = _module(system)
    pci = _pci_classes(system)
    # NVML first: like nvidia-smi it has nvidia-modprobe make the device nodes, where they only wait for a first use.
    driver = _ask_nvml_in_time(unread) if system.live else Driver()
    search = libcuda(system)
    driver = msgspec.structs.replace(
        driver,
        module_version=version,
        module_open=flavour,
        library_version=driver.library_version or (None if search.compat else search.version),
        nvidia_smi_path=_nvidia_smi(system),
        device_nodes=_nodes(system),
        nvidia_modprobe=any(system.path(f"{folder}/nvidia-modprobe").exists() for folder in ("/usr/bin", "/bin")),
        pci_gpus=None if pci is None else sum(kind in {DISPLAY, CONTROLLER_3D} for kind in pci),
        uvm_loaded=_loaded(system, "nvidia_uvm"),
        nouveau_loaded=_loaded(system, "nouveau"),
        libcuda_paths=search.paths,
        libcuda_version=search.version,
        compat_path=search.paths[0] if search.compat else None,
        compat_version=search.version if search.compat else None,
        stubs_in_library_path=search.stubs,
        tegra=_tegra(system),
    )
    if pci is not None and BRIDGE in pci:
        driver = _with_fabric_manager(system, driver, unread)
    return msgspec.structs.replace(driver, unread=unread)


def _module(system: System) -> tuple[str | None, bool | None]:
    """Version of the loaded module, and whether it is the open one.

    `NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.86  Tue Oct 26 …` is the proprietary one,
    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build …` the open one.
    """
    text = system.text_or_none("/proc/driver/nvidia/version") or ""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    if found := VERSION.search(line):
        return found[0], "Open Kernel Module" in line
    return system.text_or_none("/sys/module/nvidia/version"), None


def _pci_classes(system: System) -> list[str] | None:
    """Of each NVIDIA device on the bus, the first half of its class; None where the bus is not to be seen (WSL)."""
    devices = list(system.glob("/sys/bus/pci/devices/*"))
    if not devices or system.path("/dev/dxg").exists():
        return None
    classes: list[str] = []
    for device in devices:
        with suppress(OSError):
            if (device / "vendor").read_text(encoding="ascii").strip() == NVIDIA:
                classes.append((device / "class").read_text(encoding="ascii").strip()[:6])
    return classes


def _ask_nvml_in_time(unread: dict[str, str]) -> Driver:
    """WHY a thread: a call that hangs in the kernel cannot be ended, only left behind."""
    answers: list[Driver] = []
    asking = threading.Thread(target=lambda: answers.append(_ask_nvml()), daemon=True)
    asking.start()
    asking.join(NVML_DEADLINE_S)
    if answers:
        return answers[0]
    unread["nvml"] = f"no answer in {NVML_DEADLINE_S:g} s"
    return Driver()


def _ask_nvml() -> Driver:
    """Its versions, or else its error with the number."""
    if not nvml.installed():
        return Driver(nvml_error="NVML Shared Library Not Found", nvml_error_code=12)  # as pynvml would say
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(nvml_error=str(error), nvml_error_code=error.value)
    library = cuda = None
    with suppress(pynvml.NVMLError):
        library = _text(pynvml.nvmlSystemGetDriverVersion())
    with suppress(pynvml.NVMLError):
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda = f"{number // 1000}.{number % 1000 // 10}"
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return Driver(library_version=library, cuda_version=cuda)


def _text(value: str | bytes) -> str:
    """The binding gave bytes before 11.5."""
    return value.decode() if isinstance(value, bytes) else value


def _nodes(system: System) -> tuple[DeviceNode, ...] | None:
    """None where there is no /dev."""
    if not system.path("/dev").is_dir():
        return None
    names = [path.name for path in system.glob("/dev/nvidia*")]
    boards = sorted((name for name in names if re.fullmatch(r"nvidia\d+", name)), key=lambda name: int(name[6:]))
    known = ["nvidiactl", "nvidia-uvm", *boards] if boards or {"nvidiactl", "nvidia-uvm"} & set(names) else []
    if system.path("/dev/dxg").exists():
        known.append("dxg")
    return tuple(_node(system, f"/dev/{name}") for name in known)


def _node(system: System, path: str) -> DeviceNode:
    place = system.path(path)
    if not place.exists():
        return DeviceNode(path=path, exists=False)
    accessible = os.access(place, os.R_OK | os.W_OK)
    if accessible and system.live and path == "/dev/nvidiactl":
        # WHY: a control group may forbid what the file's mode allows; only opening shows it. This node has no state.
        try:
            os.close(os.open(place, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            accessible = False
    return DeviceNode(path=path, exists=True, accessible=accessible)


def _nvidia_smi(system: System) -> str | None:
    if system.live:
        return shutil.which("nvidia-smi", path=system.environ.get("PATH"))
    folders = system.environ.get("PATH", "/usr/bin:/usr/lib/wsl/lib").split(":")
    return next((f"{folder}/nvidia-smi" for folder in folders if system.path(f"{folder}/nvidia-smi").exists()), None)


def _loaded(system: System, module: str) -> bool | None:
    modules = system.text_or_none("/proc/modules")
    if modules is not None:
        return any(line.startswith(f"{module} ") for line in modules.splitlines())
    return system.path(f"/sys/module/{module}").exists() if system.path("/sys/module").is_dir() else None


def _tegra(system: System) -> bool:
    board = system.text_or_none("/proc/device-tree/compatible") or ""
    return "nvidia,tegra" in board or system.path("/etc/nv_tegra_release").exists()


def _with_fabric_manager(system: System, driver: Driver, unread: dict[str, str]) -> Driver:
    """Whether it runs is known only where the kernel's own threads are seen: not in containers, nor with hidepid."""
    if system.text_or_none("/proc/2/comm") != "kthreadd":
        unread["fabric_manager"] = "the host's processes are hidden from here"
        return driver
    # The kernel keeps fifteen bytes of a name.
    processes = (folder for folder in system.path("/proc").iterdir() if folder.name.isdecimal())
    running = any(_comm(folder) == "nv-fabricmanage" for folder in processes)
    version = None
    if running and system.live:
        with suppress(NotRead):
            found = VERSION.search(system.run(["nv-fabricmanager", "--version"], timeout_s=2.0))
            version = found[0] if found else None
    return msgspec.structs.replace(driver, fabric_manager_running=running, fabric_manager_version=version)


def _comm(folder: Path) -> str | None:
    with suppress(OSError):
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    return None
