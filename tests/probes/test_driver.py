"""Drivers of several machines, recorded as the few files that matter; NVML as its binding answers."""

import threading
from pathlib import Path

import pynvml
import pytest

from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.probes import driver
from gpudoctor.probes.driver import read
from gpudoctor.probes.libcuda import cached
from gpudoctor.probes.system import System

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)  Tue Sep 23\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.86  Tue Oct 26 21:55:45 UTC 2021\nGCC version:  gcc 9.4.0\n"
)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Machine:
    """A tree under construction."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, text: str = "") -> "Machine":
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return self

    def nodes(self, *names: str) -> "Machine":
        for name in names:
            self.file(f"/dev/{name}")
        return self

    def pci(self, address: str, kind: str, vendor: str = "0x10de") -> "Machine":
        self.file(f"/sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
        return self.file(f"/sys/bus/pci/devices/{address}/class", f"{kind}\n")

    def libcuda(self, folder: str, version: str) -> "Machine":
        self.file(f"{folder}/libcuda.so.{version}")
        (self.root / folder.lstrip("/") / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        return self

    def read(self, **environ: str) -> Driver:
        return read(System(root=self.root, environ=environ))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "dev").mkdir()
    return Machine(tmp_path).file("/proc/modules")


def test_bare_metal_with_the_open_module(machine: Machine) -> None:
    machine.file("/proc/driver/nvidia/version", OPEN).file("/usr/bin/nvidia-smi").file("/usr/bin/nvidia-modprobe")
    machine.file("/proc/modules", "nvidia_uvm 4956160 0 - Live 0x0\nnvidia 14376960 1 nvidia_uvm, Live 0x0\n")
    machine.nodes("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia10", "nvidia2")
    machine.pci("0000:1a:00.0", "0x030200").pci("0000:1b:00.0", "0x030000").pci("0000:00:02.0", "0x030000", "0x8086")
    found = machine.libcuda(LIBRARIES, "580.95.05").read(PATH="/bin:/usr/bin")
    assert (found.module_version, found.module_open) == ("580.95.05", True)
    assert (found.library_version, found.libcuda_version) == ("580.95.05", "580.95.05")
    assert (found.nvidia_smi_path, found.nvidia_modprobe) == ("/usr/bin/nvidia-smi", True)
    assert found.device_nodes == tuple(
        DeviceNode(path=f"/dev/{name}", exists=True, accessible=True)
        for name in ("nvidiactl", "nvidia-uvm", "nvidia2", "nvidia10")
    )
    assert (found.pci_gpus, found.uvm_loaded, found.nouveau_loaded) == (2, True, False)
    assert (found.compat_path, found.stubs_in_library_path, found.tegra) == (None, None, False)


def test_bare_metal_with_the_proprietary_module_and_no_uvm_yet(machine: Machine) -> None:
    machine.file("/proc/driver/nvidia/version", PROPRIETARY).nodes("nvidiactl", "nvidia0")
    found = machine.libcuda("/usr/lib64", "470.86").read()
    assert (found.module_version, found.module_open, found.uvm_loaded) == ("470.86", False, False)
    assert found.device_nodes is not None
    assert found.device_nodes[1] == DeviceNode(path="/dev/nvidia-uvm", exists=False)


def test_libraries_updated_under_a_running_module(machine: Machine) -> None:
    machine.file("/proc/driver/nvidia/version", OPEN).nodes("nvidiactl", "nvidia0")
    found = machine.libcuda(LIBRARIES, "580.105.08").read()
    assert (found.module_version, found.library_version) == ("580.95.05", "580.105.08")


def test_a_module_without_its_proc_file_still_gives_its_version(machine: Machine) -> None:
    found = machine.file("/sys/module/nvidia/version", "550.54.15\n").read()
    assert (found.module_version, found.module_open) == ("550.54.15", None)


def test_no_driver(machine: Machine) -> None:
    found = machine.pci("0000:01:00.0", "0x030000").read()
    assert (found.module_version, found.library_version, found.device_nodes) == (None, None, ())
    assert (found.libcuda_paths, found.pci_gpus, found.nvidia_modprobe) == ((), 1, False)


def test_nouveau(machine: Machine) -> None:
    machine.file("/proc/modules", "nouveau 2326528 4 - Live 0x0\nmxm_wmi 16384 1 nouveau, Live 0x0\n")
    assert machine.pci("0000:01:00.0", "0x030000").read().nouveau_loaded is True


def test_wsl(machine: Machine) -> None:
    machine.nodes("dxg").pci("0000:00:00.0", "0x030200", "0x1414").file("/usr/lib/wsl/lib/nvidia-smi")
    machine.file("/usr/lib/wsl/lib/libcuda.so.1.1")
    (machine.root / "usr/lib/wsl/lib/libcuda.so.1").symlink_to("libcuda.so.1.1")
    found = machine.read()
    assert found.device_nodes == (DeviceNode(path="/dev/dxg", exists=True, accessible=True),)
    assert (found.pci_gpus, found.libcuda_version, found.library_version) == (None, None, None)
    assert found.libcuda_paths == ("/usr/lib/wsl/lib/libcuda.so.1",)
    assert found.nvidia_smi_path == "/usr/lib/wsl/lib/nvidia-smi"


def test_wsl_with_a_linux_driver_in_the_way(machine: Machine) -> None:
    machine.nodes("dxg").libcuda("/usr/lib/wsl/lib", "1.1")
    found = machine.libcuda(LIBRARIES, "535.54.03").read()
    assert found.libcuda_paths == (f"{LIBRARIES}/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
    assert found.libcuda_version == "535.54.03"


def test_a_container_without_gpus_shows_the_hosts_module_and_no_more(machine: Machine) -> None:
    found = machine.file("/proc/driver/nvidia/version", OPEN).pci("0000:1a:00.0", "0x030200").read()
    assert (found.module_version, found.device_nodes, found.libcuda_paths) == ("580.95.05", (), ())


def test_cuda_compat_first_in_the_search_path(machine: Machine) -> None:
    machine.file("/proc/driver/nvidia/version", PROPRIETARY).libcuda("/usr/local/cuda-12.9/compat", "575.57.08")
    found = machine.libcuda(LIBRARIES, "470.86").read(LD_LIBRARY_PATH="/usr/local/cuda-12.9/compat:/opt/nowhere")
    assert found.libcuda_paths == ("/usr/local/cuda-12.9/compat/libcuda.so.1", f"{LIBRARIES}/libcuda.so.1")
    assert (found.compat_path, found.compat_version) == ("/usr/local/cuda-12.9/compat/libcuda.so.1", "575.57.08")
    assert found.library_version is None


def test_a_stray_libcuda_and_a_stubs_folder(machine: Machine) -> None:
    machine.file("/usr/local/cuda/lib64/stubs/libcuda.so").libcuda("/opt/old", "450.80.02")
    found = machine.libcuda(LIBRARIES, "580.95.05").read(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs::/opt/old/")
    assert (found.stubs_in_library_path, found.libcuda_version) == ("/usr/local/cuda/lib64/stubs", "450.80.02")
    assert found.compat_path is None


def test_one_file_under_two_names_counts_once(machine: Machine) -> None:
    machine.libcuda(LIBRARIES, "580.95.05")
    (machine.root / "lib").symlink_to("usr/lib")
    assert machine.read().libcuda_paths == ("/lib/x86_64-linux-gnu/libcuda.so.1",)


@pytest.mark.parametrize(("processes", "running"), [(("systemd", "nv-fabricmanage"), True), (("systemd",), False)])
def test_the_fabric_manager_where_there_are_nvswitches(
    machine: Machine, processes: tuple[str, ...], running: bool
) -> None:
    machine.pci("0000:05:00.0", "0x068000").file("/proc/2/comm", "kthreadd\n")
    for number, name in enumerate(processes):
        machine.file(f"/proc/{100 + number}/comm", f"{name}\n")
    assert machine.read().fabric_manager_running is running


def test_the_fabric_manager_of_a_host_is_out_of_sight_in_a_container(machine: Machine) -> None:
    found = machine.pci("0000:05:00.0", "0x068000").file("/proc/1/comm", "bash\n").read()
    assert found.fabric_manager_running is None
    assert "fabric_manager" in found.unread


def test_jetson(machine: Machine) -> None:
    assert machine.file("/proc/device-tree/compatible", "nvidia,p3737-0000\0nvidia,tegra234\0").read().tegra is True


def test_an_empty_tree_gives_no_answers(tmp_path: Path) -> None:
    found = read(System(root=tmp_path, environ={}))
    assert (found.device_nodes, found.pci_gpus, found.uvm_loaded, found.nouveau_loaded) == (None, None, None, None)


def test_the_loaders_cache_is_read_for_this_instruction_set_alone() -> None:
    listing = (
        "602 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1\n"
        "\tlibcuda.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so\n"
    )
    assert cached(listing, "x86_64") == ["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    assert cached(listing, "aarch64") == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch."),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ],
)
def test_nvml_errors_keep_words_and_number(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert driver._ask_nvml() == Driver(nvml_error=words, nvml_error_code=code)


@pytest.mark.parametrize(("number", "cuda"), [(13000, "13.0"), (12020, "12.2"), (11040, "11.4")])
def test_nvml_gives_versions(monkeypatch: pytest.MonkeyPatch, number: int, cuda: str) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: b"580.95.05")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: number)
    assert driver._ask_nvml() == Driver(library_version="580.95.05", cuda_version=cuda)


def test_an_nvml_that_hangs_costs_its_own_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(driver, "NVML_DEADLINE_S", 0.01)
    monkeypatch.setattr(pynvml, "nvmlInit", released.wait)
    unread: dict[str, str] = {}
    try:
        assert driver._ask_nvml_in_time(unread) == Driver()
    finally:
        released.set()
    assert unread == {"nvml": "no answer in 0.01 s"}


def test_this_machine_answers() -> None:
    assert isinstance(read(System()), Driver)
