"""Containers: what they were given, and what they keep."""

import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.network import Network, RdmaPort
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.findings import diagnose
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.rules.container import (
    capabilities_lack_compute,
    checkpoints_in_container_layer,
    container_without_gpu,
    image_wants_newer_driver,
    no_gpu_runtime,
    no_rdma_in_container,
)
from gpudoctor.snapshot import Snapshot

CUDA_TORCH = TorchBuild(installed=True, cuda="12.8", build="cuda")
CPU_TORCH = TorchBuild(installed=True, build="cpu")
STARTED = TorchRuntime(cuda_available=True)
DOCKER = Container(kind="docker", image_nvidia=False)
HIDDEN = Driver(nvml_error="NVML Shared Library Not Found", nvml_error_code=12, device_nodes=())
NODES = (DeviceNode(path="/dev/nvidiactl", exists=True), DeviceNode(path="/dev/nvidia0", exists=True))
PRIVILEGED = Driver(nvml_error="NVML Shared Library Not Found", nvml_error_code=12, device_nodes=NODES)


def test_container_without_gpu_speaks_where_torch_is_built_for_cuda() -> None:
    (found,) = container_without_gpu.judge(Snapshot(container=DOCKER, driver=HIDDEN, torch=CUDA_TORCH))
    assert found.seen == "no GPU device nodes, NVIDIA_VISIBLE_DEVICES unset"
    assert found.fix[0].text.startswith("docker run --gpus all")


def test_container_without_gpu_speaks_of_nodes_without_libraries() -> None:
    machine = Snapshot(container=Container(kind="apptainer"), driver=PRIVILEGED, torch=CUDA_TORCH)
    (found,) = container_without_gpu.judge(machine)
    assert found.seen.startswith("device nodes, but no driver libraries")
    assert "--nv" in found.fix[0].text


def test_container_without_gpu_folds_what_follows_from_it() -> None:
    machine = Snapshot(
        container=Container(kind="docker", visible_devices="void", driver_capabilities="utility"),
        driver=HIDDEN,
        torch=CUDA_TORCH,
        torch_runtime=TorchRuntime(stage="done", cuda_available=False, cuda_error_code=100, cuda="12.8"),
    )
    findings = diagnose(machine, [asked for asked in MACHINE_RULES if asked.area in {"DRV", "CTR"}]).findings
    assert [(finding.code, finding.consequences) for finding in findings] == [("CTR001", ("CTR002",))]


@pytest.mark.parametrize(
    "reason",
    [
        Snapshot(container=Container(kind="docker", image_nvidia=True), driver=HIDDEN),
        Snapshot(container=Container(kind="docker", visible_devices="all"), driver=HIDDEN),
        Snapshot(container=DOCKER, driver=HIDDEN, expected=Expected(gpus=1)),
        Snapshot(
            container=DOCKER,
            driver=Driver(module_version="580.95.05", nvml_error_code=12, nvml_error="no", device_nodes=()),
        ),
        Snapshot(container=DOCKER, driver=Driver(nvml_error="Found no NVIDIA driver on your system")),
    ],
)
def test_container_without_gpu_speaks_for_each_reason_to_expect_one(reason: Snapshot) -> None:
    assert len(list(container_without_gpu.judge(reason))) == 1


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(container=DOCKER, driver=HIDDEN),
        Snapshot(container=Container(kind="docker", image_nvidia=True), driver=HIDDEN, torch=CPU_TORCH),
        Snapshot(container=DOCKER, driver=HIDDEN, torch=CUDA_TORCH, expected=Expected(device="cpu")),
        Snapshot(container=Container(kind=None), driver=HIDDEN, torch=CUDA_TORCH),
        Snapshot(container=DOCKER, torch=CUDA_TORCH),
        Snapshot(container=DOCKER, driver=Driver(device_nodes=NODES, library_version="580.95.05"), torch=CUDA_TORCH),
        Snapshot(container=DOCKER, driver=HIDDEN, torch=CUDA_TORCH, torch_runtime=STARTED),
        Snapshot(container=DOCKER, driver=HIDDEN, torch=CUDA_TORCH, gpus=Gpus(boards=(Gpu(index=0),))),
        Snapshot(
            container=Container(kind="podman", visible_devices="void"),
            driver=Driver(device_nodes=NODES, library_version="580.95.05"),
            torch=CUDA_TORCH,
        ),
        Snapshot(
            container=DOCKER,
            driver=Driver(nvml_error="Unknown Error", nvml_error_code=999, device_nodes=NODES),
            torch=CUDA_TORCH,
        ),
    ],
)
def test_container_without_gpu_is_quiet(machine: Snapshot) -> None:
    assert list(container_without_gpu.judge(machine)) == []


def test_capabilities_lack_compute_speaks() -> None:
    container = Container(kind="docker", driver_capabilities="utility,graphics")
    (found,) = capabilities_lack_compute.judge(Snapshot(container=container, driver=Driver(libcuda_paths=())))
    assert (found.seen, found.confidence) == ("utility,graphics", "certain")


@pytest.mark.parametrize("capabilities", [None, "", "all", "compute,utility", "utility, compute"])
def test_capabilities_lack_compute_is_quiet_where_the_toolkit_gives_compute(capabilities: str | None) -> None:
    container = Container(kind="docker", driver_capabilities=capabilities)
    assert list(capabilities_lack_compute.judge(Snapshot(container=container))) == []


def test_capabilities_lack_compute_is_quiet_outside_containers_and_where_libcuda_is_there() -> None:
    host = Container(kind=None, driver_capabilities="utility")
    assert list(capabilities_lack_compute.judge(Snapshot(container=host))) == []
    driver = Driver(libcuda_paths=("/usr/lib64/libcuda.so.1",))
    inside = Container(kind="podman", driver_capabilities="utility")
    assert list(capabilities_lack_compute.judge(Snapshot(container=inside, driver=driver))) == []


def test_checkpoints_in_container_layer_speaks_of_each_folder_and_only_in_containers() -> None:
    inside = Container(kind="docker", writable_layer=("/workspace", "/ckpt"))
    assert [found.where for found in checkpoints_in_container_layer.judge(Snapshot(container=inside))] == [
        "/workspace",
        "/ckpt",
    ]
    assert list(checkpoints_in_container_layer.judge(Snapshot(container=Container(kind="docker")))) == []
    assert list(checkpoints_in_container_layer.judge(Snapshot(container=Container(writable_layer=("/x",))))) == []


NGC = "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=tesla,driver>=535,driver<536"


def test_image_wants_newer_driver_speaks_where_no_alternative_is_met() -> None:
    container = Container(kind="docker", require_cuda=NGC)
    driver = Driver(module_version="515.65.01", cuda_version="11.7")
    (found,) = image_wants_newer_driver.judge(Snapshot(container=container, driver=driver))
    assert (found.seen, found.wanted) == ("11.7 (driver 515.65.01)", "cuda>=12.8")


def test_image_wants_newer_driver_believes_the_engine() -> None:
    error = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver"
    (found,) = image_wants_newer_driver.judge(Snapshot(container=Container(runtime_error=error)))
    assert found.wanted == "cuda>=13.0"


@pytest.mark.parametrize(
    ("container", "driver"),
    [
        (Container(kind="docker", require_cuda=NGC), Driver(module_version="580.95.05", cuda_version="13.0")),
        (Container(kind="docker", require_cuda=NGC), Driver(module_version="535.104.05", cuda_version="12.2")),
        (Container(kind="docker", require_cuda=NGC), Driver()),
        (Container(kind="docker", require_cuda=NGC), None),
        (Container(kind="docker", require_cuda="cuda>=12.8", disable_require=True), Driver(cuda_version="11.7")),
        (Container(kind="docker", require_cuda="brand=tesla"), Driver(cuda_version="11.7")),
        (Container(kind="docker", require_cuda=""), Driver(cuda_version="11.7")),
        (Container(kind=None, require_cuda="cuda>=12.8"), Driver(cuda_version="11.7")),
        (Container(kind="docker", require_cuda="cuda>=12.8"), Driver(cuda_version="12.2", cuda_error=0)),
    ],
)
def test_image_wants_newer_driver_is_quiet(container: Container, driver: Driver | None) -> None:
    assert list(image_wants_newer_driver.judge(Snapshot(container=container, driver=driver))) == []


def test_no_rdma_in_container_speaks_and_needs_an_active_port() -> None:
    container = Container(kind="kubernetes", infiniband_in_host=True, infiniband_nodes=False)
    assert len(list(no_rdma_in_container.judge(Snapshot(container=container)))) == 1
    down = Network(rdma_ports=(RdmaPort(device="mlx5_0", port=1, state="DOWN"),))
    assert list(no_rdma_in_container.judge(Snapshot(container=container, network=down))) == []
    assert list(no_rdma_in_container.judge(Snapshot(container=container, expected=Expected(nodes=1)))) == []


@pytest.mark.parametrize(
    "container",
    [
        Container(kind="docker", infiniband_in_host=True, infiniband_nodes=True),
        Container(kind="docker", infiniband_in_host=False, infiniband_nodes=False),
        Container(kind="docker"),
        Container(kind=None, infiniband_in_host=True, infiniband_nodes=False),
    ],
)
def test_no_rdma_in_container_is_quiet(container: Container) -> None:
    assert list(no_rdma_in_container.judge(Snapshot(container=container))) == []


def test_no_gpu_runtime_speaks_of_the_engines_refusal_and_of_no_other() -> None:
    error = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
    (found,) = no_gpu_runtime.judge(Snapshot(container=Container(runtime_error=error)))
    assert found.seen == error
    other = Container(runtime_error="docker: Error response from daemon: pull access denied")
    assert list(no_gpu_runtime.judge(Snapshot(container=other))) == []
    assert list(no_gpu_runtime.judge(Snapshot(container=DOCKER))) == []
