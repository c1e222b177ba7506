"""What stands between a loaded driver and a CUDA that starts."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.torch import TorchRuntime
from gpudoctor.findings import Severity
from gpudoctor.rules.cuda_start import (
    compat_on_unsupported_gpu,
    device_nodes_missing,
    no_such_device,
    nvml_lost,
    stray_libcuda,
    uvm_unusable,
)
from gpudoctor.snapshot import Snapshot

HOST = Container(kind=None)
STARTED = TorchRuntime(cuda_available=True)
GEFORCE = Gpus(boards=(Gpu(index=0, name="NVIDIA GeForce RTX 3060"),))
COMPAT = "/usr/local/cuda/compat/libcuda.so.1"


def _nodes(*names: str, accessible: bool = True) -> tuple[DeviceNode, ...]:
    known = ("nvidiactl", "nvidia-uvm", *(name for name in names if name[-1].isdecimal()))
    return tuple(
        DeviceNode(path=f"/dev/{name}", exists=name in names, accessible=accessible if name in names else None)
        for name in known
    )


ALL_NODES = _nodes("nvidiactl", "nvidia-uvm", "nvidia0")


def _failed(code: int) -> TorchRuntime:
    return TorchRuntime(stage="cuda", cuda_available=False, cuda_error_code=code)


def test_compat_on_unsupported_gpu_speaks_at_error_804() -> None:
    (found,) = compat_on_unsupported_gpu.judge(Snapshot(driver=Driver(cuda_error=804)))
    assert found.seen == "error 804 (cudaErrorCompatNotSupportedOnDevice)"
    assert found.confidence == "certain"


def test_compat_on_unsupported_gpu_is_likely_for_a_geforce_before_cuda_was_tried() -> None:
    (found,) = compat_on_unsupported_gpu.judge(Snapshot(driver=Driver(compat_path=COMPAT), gpus=GEFORCE))
    assert (found.where, found.confidence) == (COMPAT, "likely")


def test_compat_on_unsupported_gpu_is_quiet_on_data_center_boards_and_where_cuda_started() -> None:
    driver = Driver(compat_path=COMPAT)
    boards = Gpus(boards=(Gpu(index=0, name="NVIDIA A100-SXM4-80GB"),))
    assert list(compat_on_unsupported_gpu.judge(Snapshot(driver=driver, gpus=boards))) == []
    assert list(compat_on_unsupported_gpu.judge(Snapshot(driver=driver, gpus=GEFORCE, torch_runtime=STARTED))) == []
    assert list(compat_on_unsupported_gpu.judge(Snapshot(driver=driver))) == []


@pytest.mark.parametrize("code", [803, 34])
def test_stray_libcuda_speaks_at_errors_803_and_34(code: int) -> None:
    (found,) = stray_libcuda.judge(
        Snapshot(driver=Driver(libcuda_paths=("/opt/libcuda.so.1",)), torch_runtime=_failed(code))
    )
    assert found.where == "/opt/libcuda.so.1"


def test_stray_libcuda_speaks_where_the_first_one_is_not_the_modules() -> None:
    driver = Driver(module_version="580.95.05", libcuda_version="535.54.03", libcuda_paths=("/opt/libcuda.so.1",))
    (found,) = stray_libcuda.judge(Snapshot(driver=driver))
    assert (found.seen, found.confidence) == ("version 535.54.03", "likely")


def test_stray_libcuda_warns_of_a_stubs_folder_where_cuda_starts_all_the_same() -> None:
    driver = Driver(stubs_in_library_path="/usr/local/cuda/lib64/stubs")
    (unknown,) = stray_libcuda.judge(Snapshot(driver=driver))
    (started,) = stray_libcuda.judge(Snapshot(driver=driver, torch_runtime=STARTED))
    assert (unknown.severity, started.severity) == (None, Severity.WARNING)


def test_stray_libcuda_is_quiet_for_compat_and_for_what_works_and_for_names_without_a_version() -> None:
    driver = Driver(
        module_version="535.54.03", libcuda_version="575.57.08", libcuda_paths=(COMPAT,), compat_path=COMPAT
    )
    assert list(stray_libcuda.judge(Snapshot(driver=driver))) == []
    works = msgspec.structs.replace(driver, compat_path=None)
    assert list(stray_libcuda.judge(Snapshot(driver=works, torch_runtime=STARTED))) == []
    wsl = Driver(libcuda_paths=("/usr/lib/wsl/lib/libcuda.so.1",))
    assert list(stray_libcuda.judge(Snapshot(driver=wsl))) == []


def test_device_nodes_missing_speaks_of_each_node() -> None:
    driver = Driver(module_version="580.95.05", device_nodes=(), nvidia_modprobe=False, pci_gpus=1)
    found = [item.where for item in device_nodes_missing.judge(Snapshot(driver=driver, container=HOST))]
    assert found == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]


def test_device_nodes_missing_speaks_where_this_user_may_not_open_them() -> None:
    nodes = _nodes("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", accessible=False)
    driver = Driver(module_version="580.95.05", device_nodes=nodes)
    found = list(device_nodes_missing.judge(Snapshot(driver=driver, container=HOST)))
    assert [item.seen for item in found] == ["no permission"] * 3


def test_device_nodes_missing_waits_for_the_first_use_of_uvm() -> None:
    driver = Driver(module_version="580.95.05", device_nodes=_nodes("nvidiactl", "nvidia0"), nvidia_modprobe=True)
    fresh = Snapshot(driver=driver, container=HOST)
    assert list(device_nodes_missing.judge(fresh)) == []
    (found,) = device_nodes_missing.judge(msgspec.structs.replace(fresh, torch_runtime=_failed(999)))
    assert found.where == "/dev/nvidia-uvm"


def test_device_nodes_missing_is_quiet_where_some_boards_are_this_users() -> None:
    nodes = (
        *_nodes("nvidiactl", "nvidia-uvm", "nvidia0"),
        DeviceNode(path="/dev/nvidia1", exists=True, accessible=False),
    )
    driver = Driver(module_version="580.95.05", device_nodes=nodes)
    assert list(device_nodes_missing.judge(Snapshot(driver=driver, container=HOST))) == []


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(driver=Driver(module_version="580.95.05", device_nodes=()), container=Container(kind="docker")),
        Snapshot(driver=Driver(module_version="580.95.05", device_nodes=()), container=HOST, host=Host(wsl=True)),
        Snapshot(driver=Driver(module_version="580.95.05", device_nodes=()), container=None),
        Snapshot(driver=Driver(module_version="580.95.05", device_nodes=()), container=HOST, torch_runtime=STARTED),
        Snapshot(driver=Driver(module_version=None, device_nodes=()), container=HOST),
        Snapshot(driver=Driver(module_version="580.95.05"), container=HOST),
    ],
)
def test_device_nodes_missing_is_quiet(machine: Snapshot) -> None:
    assert list(device_nodes_missing.judge(machine)) == []


def test_uvm_unusable_speaks_at_error_999_with_the_nodes_there_or_not_looked_at() -> None:
    driver = Driver(device_nodes=ALL_NODES, uvm_loaded=False)
    (found,) = uvm_unusable.judge(Snapshot(driver=driver, torch_runtime=_failed(999)))
    assert (found.seen, found.confidence) == ("error 999 (cudaErrorUnknown), nvidia_uvm not loaded", "certain")
    assert len(list(uvm_unusable.judge(Snapshot(driver=Driver(cuda_error=999))))) == 1


def test_uvm_unusable_is_quiet_without_the_node_and_at_other_errors() -> None:
    missing = Driver(device_nodes=_nodes("nvidiactl", "nvidia0"))
    assert list(uvm_unusable.judge(Snapshot(driver=missing, torch_runtime=_failed(999)))) == []
    assert list(uvm_unusable.judge(Snapshot(driver=Driver(device_nodes=ALL_NODES), torch_runtime=_failed(802)))) == []


def test_nvml_lost_speaks_in_a_container_that_has_the_nodes() -> None:
    nodes = _nodes("nvidiactl", "nvidia-uvm", "nvidia0", accessible=False)
    driver = Driver(nvml_error="Unknown Error", nvml_error_code=999, device_nodes=nodes)
    (found,) = nvml_lost.judge(Snapshot(driver=driver, container=Container(kind="docker")))
    assert (found.seen, found.confidence) == ("Unknown Error, /dev/nvidiactl may not be opened", "certain")


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(driver=Driver(nvml_error="Unknown Error", nvml_error_code=999), container=HOST),
        Snapshot(
            driver=Driver(nvml_error="Unknown Error", nvml_error_code=999, device_nodes=()),
            container=Container(kind="lxc"),
        ),
        Snapshot(driver=Driver(nvml_error="Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error")),
        Snapshot(driver=Driver(nvml_error="Driver Not Loaded", nvml_error_code=9), container=Container(kind="docker")),
        Snapshot(driver=Driver(), container=Container(kind="docker")),
    ],
)
def test_nvml_lost_is_quiet(machine: Snapshot) -> None:
    assert list(nvml_lost.judge(machine)) == []


def test_no_such_device_speaks_at_error_100_with_the_kernels_words() -> None:
    log = KernelLog(nvrm_errors=("GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",))
    driver = Driver(module_version="580.95.05", library_version="580.95.05")
    (found,) = no_such_device.judge(Snapshot(driver=driver, torch_runtime=_failed(100), kernel_log=log))
    assert found.seen.startswith("error 100 (cudaErrorNoDevice); kernel log: GPU 0000:01:00.0: RmInitAdapter failed")


def test_no_such_device_speaks_of_a_linux_libcuda_before_that_of_wsl() -> None:
    driver = Driver(libcuda_paths=("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"))
    host = Host(system="Linux", wsl=True)
    (likely,) = no_such_device.judge(Snapshot(driver=driver, host=host))
    (certain,) = no_such_device.judge(Snapshot(driver=driver, host=host, torch_runtime=_failed(100)))
    assert (likely.confidence, certain.confidence) == ("likely", "certain")
    assert "Windows brings the driver" in certain.fix[0].text


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_no_such_device_is_quiet_where_the_user_hides_every_gpu(visible: str) -> None:
    hidden = Environment(variables={"CUDA_VISIBLE_DEVICES": visible})
    machine = Snapshot(driver=Driver(module_version="580.95.05"), torch_runtime=_failed(100), environment=hidden)
    assert list(no_such_device.judge(machine)) == []


def test_no_such_device_is_quiet_without_a_driver_and_on_a_healthy_wsl_and_where_nothing_was_tried() -> None:
    missing = Driver(nvml_error="Driver Not Loaded", nvml_error_code=9)
    assert list(no_such_device.judge(Snapshot(driver=missing, torch_runtime=_failed(100)))) == []
    wsl = Driver(libcuda_paths=("/usr/lib/wsl/lib/libcuda.so.1",), device_nodes=())
    assert list(no_such_device.judge(Snapshot(driver=wsl, host=Host(wsl=True)))) == []
    assert list(no_such_device.judge(Snapshot(driver=Driver(module_version="580.95.05")))) == []
