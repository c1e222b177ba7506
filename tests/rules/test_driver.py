"""The driver: missing, mismatched, too old, displaced."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.findings import Severity, diagnose
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.rules.driver import (
    driver_below_toolkit,
    driver_library_mismatch,
    driver_too_old,
    no_nvidia_driver,
    nouveau_loaded,
)
from gpudoctor.snapshot import Snapshot

NO_DRIVER = Driver(
    nvml_error="NVML Shared Library Not Found", nvml_error_code=12, device_nodes=(), pci_gpus=1, nouveau_loaded=False
)
CUDA_TORCH = TorchBuild(installed=True, version="2.9.1+cu128", cuda="12.8", build="cuda")


def _torch(cuda: str) -> TorchBuild:
    return TorchBuild(installed=True, cuda=cuda, build="cuda")


def test_no_nvidia_driver_speaks_where_torch_is_built_for_cuda() -> None:
    machine = Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, container=Container(kind=None), host=Host(system="Linux"))
    (found,) = no_nvidia_driver.judge(machine)
    assert found.seen == "NVML: NVML Shared Library Not Found, no /dev/nvidiactl; 1 NVIDIA GPU on the PCI bus"
    assert found.confidence == "certain"


def test_no_nvidia_driver_speaks_where_the_policy_wants_gpus_and_names_the_missing_board() -> None:
    driver = msgspec.structs.replace(NO_DRIVER, pci_gpus=0)
    (found,) = no_nvidia_driver.judge(Snapshot(driver=driver, expected=Expected(gpus=8)))
    assert "no NVIDIA GPU on the PCI bus" in found.seen
    assert 'device = "cpu"' in found.fix[1].text


def test_no_nvidia_driver_is_only_likely_from_pasted_text_which_has_no_device_nodes() -> None:
    (found,) = no_nvidia_driver.judge(Snapshot(driver=Driver(nvml_error="No CUDA"), torch=CUDA_TORCH))
    assert found.confidence == "likely"


def test_no_nvidia_driver_sends_wsl_users_to_windows() -> None:
    machine = Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, host=Host(system="Linux", wsl=True))
    (found,) = no_nvidia_driver.judge(machine)
    assert "Windows" in found.fix[0].text


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(driver=NO_DRIVER),
        Snapshot(driver=NO_DRIVER, torch=TorchBuild(installed=True, build="cpu")),
        Snapshot(driver=NO_DRIVER, torch=TorchBuild(installed=True, build="rocm", rocm="6.3")),
        Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, expected=Expected(device="cpu")),
        Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, host=Host(system="Darwin")),
        Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, container=Container(kind="docker")),
        Snapshot(driver=msgspec.structs.replace(NO_DRIVER, tegra=True), torch=CUDA_TORCH),
        Snapshot(driver=msgspec.structs.replace(NO_DRIVER, module_version="580.95.05"), torch=CUDA_TORCH),
        Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, torch_runtime=TorchRuntime(cuda_available=True)),
        Snapshot(driver=NO_DRIVER, torch=CUDA_TORCH, gpus=Gpus(boards=(Gpu(index=0),))),
        Snapshot(driver=Driver(unread={"nvml": "no answer in 3 s"}), torch=CUDA_TORCH),
        Snapshot(driver=Driver(nvml_error="Driver/library version mismatch", nvml_error_code=18), torch=CUDA_TORCH),
        Snapshot(driver=Driver(nvml_error="Unknown Error", nvml_error_code=999), torch=CUDA_TORCH),
        Snapshot(torch=CUDA_TORCH),
    ],
)
def test_no_nvidia_driver_is_quiet(machine: Snapshot) -> None:
    assert list(no_nvidia_driver.judge(machine)) == []


def test_no_driver_makes_one_finding_and_not_twelve() -> None:
    machine = Snapshot(
        driver=msgspec.structs.replace(NO_DRIVER, nouveau_loaded=True),
        torch=CUDA_TORCH,
        container=Container(kind=None),
        torch_runtime=TorchRuntime(stage="done", cuda_available=False, cuda_error_code=100, cuda="12.8"),
    )
    findings = diagnose(machine, [asked for asked in MACHINE_RULES if asked.area == "DRV"]).findings
    assert [(finding.code, finding.consequences) for finding in findings] == [("DRV011", ("DRV001",))]


def test_driver_library_mismatch_speaks_at_error_18() -> None:
    driver = Driver(
        module_version="570.124.06",
        library_version="570.133.07",
        nvml_error="Driver/library version mismatch",
        nvml_error_code=18,
    )
    log = KernelLog(nvrm_errors=("API mismatch: the client has the version 570.133.07, the kernel module 570.124.06",))
    (found,) = driver_library_mismatch.judge(Snapshot(driver=driver, kernel_log=log))
    assert found.seen.startswith("module 570.124.06, library 570.133.07, API mismatch")
    assert found.confidence == "certain"


def test_driver_library_mismatch_speaks_of_pasted_words_without_a_number() -> None:
    driver = Driver(nvml_error="Failed to initialize NVML: Driver/library version mismatch")
    assert len(list(driver_library_mismatch.judge(Snapshot(driver=driver)))) == 1


def test_driver_library_mismatch_speaks_of_a_pasted_log_alone() -> None:
    log = KernelLog(nvrm_errors=("API mismatch: the client has the version 570.133.07, the kernel module 570.124.06",))
    (found,) = driver_library_mismatch.judge(Snapshot(kernel_log=log))
    assert found.confidence == "likely"


def test_driver_library_mismatch_is_quiet_on_an_old_line_of_the_log_while_nvml_works() -> None:
    driver = Driver(module_version="570.133.07", library_version="570.133.07", cuda_version="12.8")
    log = KernelLog(nvrm_errors=("API mismatch: the client has the version 570.133.07, the kernel module 570.124.06",))
    assert list(driver_library_mismatch.judge(Snapshot(driver=driver, kernel_log=log))) == []


def test_driver_library_mismatch_is_quiet_on_a_stale_libcuda_of_an_image_without_nvml() -> None:
    log = KernelLog(nvrm_errors=("API mismatch: the client has the version 535.54.03, the kernel module 580.95.05",))
    driver = Driver(module_version="580.95.05", library_version="535.54.03", nvml_error="not found", nvml_error_code=12)
    assert list(driver_library_mismatch.judge(Snapshot(driver=driver, kernel_log=log))) == []


def test_driver_library_mismatch_is_quiet_on_a_version_cut_short_and_on_one_alone() -> None:
    cut = Driver(module_version="570.133.07", library_version="570.133")
    assert list(driver_library_mismatch.judge(Snapshot(driver=cut))) == []
    assert list(driver_library_mismatch.judge(Snapshot(driver=Driver(module_version="570.133.07")))) == []


@pytest.mark.parametrize(
    ("built", "version"), [("13.0", "570.124.06"), ("12.1", "470.86"), ("11.8", "440.33.01"), ("12.8", "525.60.11")]
)
def test_driver_too_old_speaks_below_the_floor_of_the_major(built: str, version: str) -> None:
    (found,) = driver_too_old.judge(Snapshot(driver=Driver(module_version=version), torch=_torch(built)))
    assert found.seen == version
    assert f"CUDA {built}" in found.wanted


@pytest.mark.parametrize(
    ("built", "version"),
    [
        ("12.8", "535.104.05"),
        ("11.8", "450.80.02"),
        ("11.0", "450.51.06"),
        ("13.0", "580.65.06"),
        ("10.2", "440.33.01"),
    ],
)
def test_driver_too_old_is_quiet_where_minor_version_compatibility_makes_it_work(built: str, version: str) -> None:
    assert list(driver_too_old.judge(Snapshot(driver=Driver(module_version=version), torch=_torch(built)))) == []


def test_driver_too_old_believes_error_35_where_torch_is_not_in_sight() -> None:
    driver = Driver(library_version="470.86", cuda_version="11.4", cuda_error=35)
    (found,) = driver_too_old.judge(Snapshot(driver=driver))
    assert found.seen == "470.86, CUDA 11.4 at most, error 35 (cudaErrorInsufficientDriver)"


def test_driver_too_old_is_quiet_with_a_cuda_compat_that_is_new_enough() -> None:
    driver = Driver(module_version="470.86", compat_path="/usr/local/cuda/compat", compat_version="575.57.08")
    assert list(driver_too_old.judge(Snapshot(driver=driver, torch=_torch("12.8")))) == []


def test_driver_too_old_goes_by_the_cuda_version_on_wsl() -> None:
    host = Host(system="Linux", wsl=True)
    old, new = (Driver(library_version="472.12", cuda_version=version) for version in ("11.4", "12.2"))
    assert len(list(driver_too_old.judge(Snapshot(driver=old, host=host, torch=_torch("12.8"))))) == 1
    assert list(driver_too_old.judge(Snapshot(driver=new, host=host, torch=_torch("12.8")))) == []


def test_driver_too_old_is_quiet_without_a_version_and_where_cuda_started() -> None:
    assert list(driver_too_old.judge(Snapshot(driver=Driver(), torch=_torch("12.8")))) == []
    started = TorchRuntime(cuda_available=True)
    old = Driver(module_version="470.86")
    assert list(driver_too_old.judge(Snapshot(driver=old, torch=_torch("12.8"), torch_runtime=started))) == []


@pytest.mark.parametrize("offered", ["12.2", None])
def test_driver_below_toolkit_tells_of_cu128_on_driver_535_as_info(offered: str | None) -> None:
    machine = Snapshot(driver=Driver(module_version="535.104.05", cuda_version=offered), torch=_torch("12.8"))
    (found,) = driver_below_toolkit.judge(machine)
    assert found.seen.startswith("535.104.05")
    assert driver_below_toolkit.severity is Severity.INFO


def test_driver_below_toolkit_is_quiet_across_majors_and_with_compat_and_without_facts() -> None:
    across = Snapshot(driver=Driver(module_version="470.86", cuda_version="11.4"), torch=_torch("12.8"))
    compat = Driver(module_version="550.90.07", cuda_version="12.6", compat_version="560.35.03")
    assert list(driver_below_toolkit.judge(across)) == []
    assert list(driver_below_toolkit.judge(Snapshot(driver=compat, torch=_torch("12.6")))) == []
    assert list(driver_below_toolkit.judge(Snapshot(driver=Driver(), torch=_torch("12.8")))) == []


def test_nouveau_loaded_speaks_where_it_holds_the_card() -> None:
    (found,) = nouveau_loaded.judge(Snapshot(driver=Driver(nouveau_loaded=True, pci_gpus=1), torch=CUDA_TORCH))
    assert found.seen == "nouveau"


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(driver=Driver(nouveau_loaded=True, pci_gpus=1), torch=TorchBuild(build="cpu")),
        Snapshot(driver=Driver(nouveau_loaded=True, pci_gpus=1), torch=CUDA_TORCH, expected=Expected(device="cpu")),
        Snapshot(driver=Driver(nouveau_loaded=True, pci_gpus=2, module_version="580.95.05"), torch=CUDA_TORCH),
        Snapshot(driver=Driver(nouveau_loaded=None, pci_gpus=1), torch=CUDA_TORCH),
    ],
)
def test_nouveau_loaded_is_quiet_on_a_display_that_needs_no_cuda(machine: Snapshot) -> None:
    assert list(nouveau_loaded.judge(machine)) == []


def test_a_node_that_is_listed_as_missing_is_no_driver() -> None:
    driver = msgspec.structs.replace(NO_DRIVER, device_nodes=(DeviceNode(path="/dev/nvidiactl", exists=False),))
    assert len(list(no_nvidia_driver.judge(Snapshot(driver=driver, torch=CUDA_TORCH)))) == 1
