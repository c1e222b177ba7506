"""torch.utils.collect_env from 1.3 to 2.15, on every system, and back again from facts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.packages import Packages
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.readers.collect_env import NO_ANSWER, read
from gpudoctor.readers.frame import clean
from gpudoctor.readers.frame import read as read_case
from gpudoctor.snapshot import Snapshot

OLD = """\
PyTorch version: 1.3.0
Is debug build: No
CUDA used to build PyTorch: 10.1.243

OS: CentOS Linux 7 (Core)
GCC version: (GCC) 4.8.5
CMake version: Could not collect

Python version: 3.6
Is CUDA available: Yes
CUDA runtime version: Could not collect
GPU models and configuration:
GPU 0: Tesla V100-SXM2-16GB
GPU 1: Tesla V100-SXM2-16GB

Nvidia driver version: 418.67
cuDNN version: /usr/local/cuda-10.1/lib64/libcudnn.so.7.6.3

Versions of relevant libraries:
[pip] numpy==1.17.2
[pip] torch==1.3.0
[conda] pytorch                   1.3.0           py3.6_cuda10.1.243_cudnn7.6.3_0    pytorch
"""
MACOS = """\
PyTorch version: 2.7.1
Is debug build: False
CUDA used to build PyTorch: None
ROCM used to build PyTorch: N/A

OS: macOS 15.5 (arm64)
GCC version: Could not collect
Clang version: 17.0.0 (clang-1700.0.13.5)
Libc version: N/A

Python version: 3.13.3 (main, Apr  8 2025, 13:54:08) [Clang 16.0.0 (clang-1600.0.26.6)] (64-bit runtime)
Python platform: macOS-15.5-arm64-arm-64bit-Mach-O
Is CUDA available: False
CUDA runtime version: No CUDA
CUDA_MODULE_LOADING set to: N/A
GPU models and configuration: No CUDA
Nvidia driver version: No CUDA
cuDNN version: No CUDA
Is XNNPACK available: True

CPU:
Apple M4 Pro

Versions of relevant libraries:
[pip3] numpy==2.2.6
[pip3] torch==2.7.1
[conda] Could not collect
"""
WINDOWS = """\
PyTorch version: 2.6.0+cu126
CUDA used to build PyTorch: 12.6
OS: Microsoft Windows 11 Home (10.0.26100 64-bit)
Python version: 3.12.9 | packaged by Anaconda, Inc. | (main, Feb  6 2025, 18:49:16) [MSC v.1929 64 bit (AMD64)]
Python platform: Windows-11-10.0.26100-SP0
Is CUDA available: True
CUDA runtime version: 12.6.85
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 3060 Laptop GPU
Nvidia driver version: 560.94
CPU:
Name: AMD Ryzen 7 5800H with Radeon Graphics
Manufacturer: AuthenticAMD

[pip3] torch==2.6.0+cu126
"""
TORCHLESS = """\
PyTorch version: N/A
Is debug build: N/A
CUDA used to build PyTorch: N/A
OS: Ubuntu 22.04.5 LTS (x86_64)
Python version: 3.10.12 (main, Jan  8 2026, 06:52:19) [GCC 11.4.0] (64-bit runtime)
Is CUDA available: N/A
[pip3] numpy==1.26.4
"""
NEW = """\
==============================
        System Info
==============================
OS                           : Ubuntu 24.04.2 LTS (x86_64)
GCC version                  : Could not collect
Clang version                : Could not collect
Libc version                 : glibc-2.39

==============================
       PyTorch Info
==============================
PyTorch version              : 2.15.0+cu132
CUDA used to build PyTorch   : 13.2
ROCM used to build PyTorch   : N/A

Python version               : 3.13.3 (main) [GCC 13.3.0] (64-bit runtime)
Python platform              : Linux-6.8.0-60-generic-x86_64-with-glibc2.39
Is CUDA available            : True
CUDA runtime version         : Could not collect
GPU models and configuration :
GPU 0: NVIDIA H200
  MIG 1g.18gb     Device  0:

Nvidia driver version        : Could not collect
cuDNN version                : Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.9.10.2
/usr/lib/x86_64-linux-gnu/libcudnn_adv.so.9.10.2

[pip3] nvidia-cublas==13.2.0.9
[pip3] nvidia-cudnn-cu13==9.26.0.51
[pip3] torch==2.15.0
[pip3] triton==3.9.0
[conda] nvidia-cudnn-cu13        9.26.0.51                pypi_0    pypi
"""


def _read(text: str) -> Snapshot:
    found = read(text)
    assert found is not None
    return found


def test_the_layout_of_1_3_is_read() -> None:
    found = _read(OLD)
    assert found.torch == TorchBuild(
        installed=True, version="1.3.0", cuda="10.1.243", build="cuda", python_version="3.6", python_tag="cp36"
    )
    assert found.torch_runtime is not None
    assert found.torch_runtime.cuda_available is True
    assert found.gpus is not None
    assert [board.name for board in found.gpus.boards] == ["Tesla V100-SXM2-16GB"] * 2
    assert found.driver == Driver(module_version="418.67", library_version="418.67")
    assert found.host == Host(system="Linux", distribution="CentOS Linux 7 (Core)")
    assert found.libraries is not None
    assert [(library.library, library.version) for library in found.libraries.system or ()] == [("cudnn", "7.6.3")]


def test_macos_has_no_nvidia_driver_to_miss() -> None:
    found = _read(MACOS)
    assert found.driver is None
    assert found.torch is not None
    assert found.torch.build == "mps"
    assert found.host == Host(system="Darwin", distribution="macOS 15.5", machine="arm64")


def test_windows_is_read() -> None:
    found = _read(WINDOWS)
    assert found.host == Host(system="Windows", distribution="Microsoft Windows 11 Home (10.0.26100 64-bit)")
    assert found.cpu == Cpu(model="AMD Ryzen 7 5800H with Radeon Graphics")
    assert found.packages is None
    assert found.torch is not None
    assert (found.torch.cuda, found.torch.arch_list) == ("12.6", None)


def test_a_torch_that_is_not_listed_is_not_installed() -> None:
    found = _read(TORCHLESS)
    assert found.torch is not None
    assert found.torch.installed is False
    assert found.torch_runtime is not None
    assert found.torch_runtime.stage == "import"


def test_a_torch_that_is_listed_and_does_not_import_is_installed() -> None:
    found = _read(TORCHLESS + "[pip3] torch==2.8.0\n")
    assert found.torch is not None
    assert (found.torch.installed, found.torch.version) == (True, "2.8.0")
    assert found.torch_runtime is not None
    assert found.torch_runtime.version is None


def test_without_a_list_nobody_knows_whether_torch_is_installed() -> None:
    found = _read(TORCHLESS.partition("[pip3]")[0])
    assert found.torch is not None
    assert found.torch.installed is None


def test_vllms_variant_is_read_and_a_driver_of_610_is_not_missing() -> None:
    found = _read(NEW)
    assert found.driver is None
    assert found.host == Host(
        system="Linux",
        kernel="6.8.0-60-generic",
        machine="x86_64",
        distribution="Ubuntu 24.04.2 LTS",
        wsl=False,
        glibc="2.39",
    )
    assert found.gpus is not None
    assert [board.name for board in found.gpus.boards] == ["NVIDIA H200"]
    assert found.packages is not None
    assert found.packages.compilers == ()
    assert found.libraries is not None
    assert [(wheel.package, wheel.library, wheel.cuda_major) for wheel in found.libraries.wheels or ()] == [
        ("nvidia-cublas", "cublas", 13),
        ("nvidia-cudnn-cu13", "cudnn", 13),
    ]


def test_no_driver_version_and_no_board_is_no_driver() -> None:
    text = OLD.replace("418.67", "Could not collect").replace("GPU 0: Tesla V100-SXM2-16GB\nGPU 1", "X")
    text = text.replace("configuration:\nX: Tesla V100-SXM2-16GB\n", "configuration: Could not collect\n")
    found = _read(text.replace("Is CUDA available: Yes", "Is CUDA available: No"))
    assert found.driver == Driver(nvml_error=NO_ANSWER)


def test_rocm_boards_are_no_nvidia_boards() -> None:
    text = WINDOWS.replace("CUDA used to build PyTorch: 12.6", "ROCM used to build PyTorch: 6.4.43482")
    found = _read(text.replace("GPU 0: NVIDIA GeForce RTX 3060 Laptop GPU", "AMD Instinct MI300X (gfx942:sramecc+)"))
    assert found.gpus is None
    assert found.torch is not None
    assert (found.torch.build, found.torch.cuda) == ("rocm", None)
    assert found.torch_runtime is not None
    assert found.torch_runtime.device_names == ("AMD Instinct MI300X (gfx942:sramecc+)",)


def test_conda_alone_tells_the_build() -> None:
    found = _read("Is CUDA available: False\n[conda] pytorch   2.1.0   py3.11_cpu_0    pytorch\n")
    assert found.torch is not None
    assert (found.torch.version, found.torch.build) == ("2.1.0", "cpu")


@pytest.mark.parametrize("end", [100, 200, 300, 500, 700])
def test_a_cut_report_is_read_as_far_as_it_goes(end: int) -> None:
    found = _read(OLD[:end])
    assert found.torch is not None
    assert found.torch.version == "1.3.0"
    assert found.driver is None or found.driver.nvml_error is None


def test_the_lower_half_alone_will_do() -> None:
    found = _read(OLD.partition("Is CUDA available")[1] + OLD.partition("Is CUDA available")[2])
    assert found.driver is not None
    assert found.driver.module_version == "418.67"


def test_of_two_reports_the_last_counts() -> None:
    found = _read(OLD + "\nand after the update:\n" + NEW)
    assert found.torch is not None
    assert found.torch.version == "2.15.0+cu132"
    assert found.driver is None


@pytest.mark.parametrize("mark", ["> ", "    ", "\x1b[0m", "2026-03-02T10:00:00.0000000Z "])
def test_marks_before_each_line_change_nothing(mark: str) -> None:
    marked = "\n".join(mark + line for line in OLD.splitlines())
    assert read(clean(marked)) == read(OLD)


@pytest.mark.parametrize("text", ["Python version: 3.10\nOS: Linux", "PyTorch version: 2.1\n", "[pip3] torch==2.1"])
def test_a_line_or_two_of_an_issue_form_is_no_report(text: str) -> None:
    assert read(text) is None


# From facts to text and back


def _written(machine: Snapshot) -> str:
    """In the layout of torch 2.11. Written from facts alone."""
    torch, runtime, host, cpu = machine.torch, machine.torch_runtime, machine.host, machine.cpu
    assert torch is not None
    assert host is not None
    assert cpu is not None
    boards = machine.gpus.boards if machine.gpus else ()
    listed = "\n".join(f"GPU {board.index}: {board.name}" for board in boards)
    driver = machine.driver.module_version if machine.driver else None
    available = {True: "True", False: "False", None: "N/A"}[runtime.cuda_available if runtime else None]
    missing = "No CUDA" if torch.version else "Could not collect"
    packages = machine.packages.installed if machine.packages else ()
    wheels = (machine.libraries.wheels or ()) if machine.libraries else ()
    nvcc = machine.libraries.nvcc_version if machine.libraries else None
    compilers = machine.packages.compilers or () if machine.packages else ()
    return "\n".join(
        [
            "Collecting environment information...",
            f"PyTorch version: {torch.version or 'N/A'}",
            "Is debug build: False",
            f"CUDA used to build PyTorch: {torch.cuda or ('None' if torch.version else 'N/A')}",
            f"ROCM used to build PyTorch: {torch.rocm or 'N/A'}",
            "",
            f"OS: {host.distribution} ({host.machine})",
            f"GCC version: {'(GCC) 13.3.0' if 'gcc' in compilers else 'Could not collect'}",
            f"Clang version: {'18.1.3' if 'clang' in compilers else 'Could not collect'}",
            "CMake version: Could not collect",
            f"Libc version: glibc-{host.glibc}",
            "",
            f"Python version: {torch.python_version} (main, Jan  1 2026, 00:00:00) [GCC 13.3.0] (64-bit runtime)",
            f"Python platform: Linux-{host.kernel}-{host.machine}-with-glibc{host.glibc}",
            f"Is CUDA available: {available}",
            f"CUDA runtime version: {nvcc or missing}",
            "GPU models and configuration: " + (f"\n{listed}\n" if len(boards) > 1 else listed or missing),
            f"Nvidia driver version: {driver or missing}",
            f"cuDNN version: {missing if not boards else 'Could not collect'}",
            "HIP runtime version: N/A",
            "",
            "CPU:",
            f"Architecture:                         {host.machine}",
            "CPU op-mode(s):                       32-bit, 64-bit",
            f"CPU(s):                               {cpu.count}",
            f"On-line CPU(s) list:                  0-{(cpu.count or 1) - 1}",
            f"Model name:                           {cpu.model}",
            f"Core(s) per socket:                   {(cpu.cores or 1) // (cpu.numa_nodes or 1)}",
            f"Socket(s):                            {cpu.numa_nodes}",
            f"NUMA node(s):                         {cpu.numa_nodes}",
            "",
            "Versions of relevant libraries:",
            *(f"[pip3] {package.name}=={package.version}" for package in packages),
            *(f"[pip3] {wheel.package}=={wheel.version}" for wheel in wheels),
            *([f"[pip3] torch=={torch.version}"] if torch.version else []),
            "[conda] Could not collect",
        ]
    )


def _told(machine: Snapshot) -> dict[str, object]:
    """The facts that collect_env prints."""
    torch, runtime, host, cpu = machine.torch, machine.torch_runtime, machine.host, machine.cpu
    assert torch is not None
    assert host is not None
    assert cpu is not None
    return {
        "torch": (torch.installed, torch.version, torch.cuda, torch.rocm, torch.build, torch.python_version),
        "arch": torch.arch_list,
        "tag": torch.python_tag,
        "runtime": (runtime.version, runtime.cuda, runtime.cuda_available) if runtime else None,
        "boards": [(board.index, board.name, board.compute_capability) for board in machine.gpus.boards]
        if machine.gpus
        else [],
        "driver": machine.driver.module_version if machine.driver else None,
        "host": (host.system, host.kernel, host.machine, host.distribution, host.wsl, host.glibc),
        "cpu": (cpu.model, cpu.count, cpu.cores, cpu.numa_nodes),
        "packages": [(package.name, package.version) for package in machine.packages.installed]
        if machine.packages
        else [],
        "compilers": {"gcc", "clang"} & set(machine.packages.compilers or ()) if machine.packages else None,
        "wheels": [
            (wheel.package, wheel.version, wheel.library, wheel.cuda_major) for wheel in machine.libraries.wheels or ()
        ]
        if machine.libraries
        else [],
        "nvcc": machine.libraries.nvcc_version if machine.libraries else None,
    }


def _machines(healthy: Snapshot) -> dict[str, Snapshot]:
    change = msgspec.structs.replace
    assert healthy.torch is not None
    assert healthy.host is not None
    # The code in the wheel as the table of releases has it.
    arch_list = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    node = change(healthy, torch=change(healthy.torch, arch_list=arch_list))
    cpu_build = TorchBuild(
        installed=True, version="2.11.0+cpu", build="cpu", python_version="3.12.3", python_tag="cp312"
    )
    return {
        "eight H100": node,
        "one board under WSL": change(
            node,
            host=change(healthy.host, kernel="6.6.87.2-microsoft-standard-WSL2", wsl=True),
            gpus=Gpus(boards=(Gpu(index=0, name="NVIDIA GeForce RTX 4090", compute_capability="8.9"),)),
        ),
        "a toolkit": change(node, libraries=Libraries(wheels=(), nvcc_version="12.8")),
        "no GPU": change(
            node,
            gpus=None,
            driver=None,
            torch=cpu_build,
            torch_runtime=TorchRuntime(version="2.11.0+cpu", cuda_available=False),
            packages=Packages(compilers=()),
            libraries=Libraries(wheels=()),
        ),
    }


RECORDED = Path(__file__).parent.parent / "recorded"
NAMES = ["eight H100", "one board under WSL", "a toolkit", "no GPU"]


@pytest.mark.parametrize("name", [*NAMES, *sorted(file.parent.name for file in RECORDED.glob("*/snapshot.json"))])
def test_facts_written_as_collect_env_and_read_back_are_the_same(name: str, healthy: Snapshot) -> None:
    made = _machines(healthy)
    machine = made[name] if name in made else Snapshot.from_json((RECORDED / name / "snapshot.json").read_bytes())
    assert _told(read_case([_written(machine)]).snapshot) == _told(machine)
