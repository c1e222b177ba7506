"""Rules on containers: what they were given, and what they keep."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import Driver
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cuda as look
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import cuda

_GIVE_GPUS = {
    "docker": "docker run --gpus all …; in a compose file, a device reservation with capabilities [gpu]",
    "podman": "podman run --device nvidia.com/gpu=all …",
    "containerd": "nerdctl run --gpus all …",
    "kubernetes": "ask for them in the pod: resources: limits: nvidia.com/gpu: 1",
    "apptainer": "apptainer exec --nv …",
    "lxc": "add a gpu device to the container: lxc config device add NAME gpu gpu",
}


@rule(
    "CTR001",
    "container-without-gpu",
    Severity.ERROR,
    why="the container was started without GPUs, so CUDA finds no driver in it; installing one inside does not help",
    fix=Fix("start it with GPUs; with Docker, docker run --gpus all …", safety="restarts"),
    confirm="ls -l /dev/nvidia*; ldconfig -p | grep -e libcuda.so -e libnvidia-ml",
    source="NVIDIA Container Toolkit documentation, running a sample workload; specialized configurations with Docker",
    because=("CTR006", "DRV011"),
)
def container_without_gpu(machine: Snapshot) -> Iterator[Evidence]:
    """In a container that has no GPU device nodes, or has them without the driver's libraries (--privileged alone).

    Silent where nothing there needs a GPU (no torch for CUDA, no NVIDIA image, no NVIDIA variables, no NVIDIA module in
    the kernel), for torch for the CPU or ROCm, and for NVIDIA_VISIBLE_DEVICES=void with devices, which CDI sets.
    """
    container, driver = machine.container, machine.driver
    if container is None or container.kind is None or driver is None or look.unwanted(machine):
        return
    if driver.tegra or not _needs_gpu(machine, container, driver) or not _no_gpu(machine, driver):
        return
    if driver.device_nodes is None:
        seen = f"NVML: {driver.nvml_error}"
    elif not look.boards(driver):
        seen = "no GPU device nodes"
    else:
        seen = f"device nodes, but no driver libraries (NVML: {driver.nvml_error})"
    visible = container.visible_devices
    host = ", no NVIDIA module in the host's kernel" if driver.module_version is None and driver.pci_gpus == 0 else ""
    yield Evidence(
        where=container.kind,
        what="GPUs in the container",
        seen=f"{seen}, NVIDIA_VISIBLE_DEVICES {'unset' if visible is None else repr(visible)}{host}",
        wanted="device nodes and libraries of the host's driver",
        fix=(Fix(_GIVE_GPUS[container.kind], safety="restarts"),) if container.kind in _GIVE_GPUS else (),
    )


def _needs_gpu(machine: Snapshot, container: Container, driver: Driver) -> bool:
    return (
        look.wanted(machine)
        or bool(container.image_nvidia)
        or container.visible_devices is not None
        or driver.module_version is not None
        # Pasted text, which nobody asked for its device nodes: it speaks of a CUDA that was wanted.
        or driver.device_nodes is None
    )


def _no_gpu(machine: Snapshot, driver: Driver) -> bool:
    """NVML found no driver, or there is no board behind the nodes there are."""
    if look.start_error(machine) == 0 or (machine.gpus is not None and machine.gpus.boards):
        return False
    hidden = driver.device_nodes is not None and not look.boards(driver)
    return look.nvml_missing(machine) or (hidden and driver.nvml_error is not None)


@rule(
    "CTR002",
    "capabilities-lack-compute",
    Severity.ERROR,
    why="without the capability compute the container gets no libcuda: nvidia-smi may work while torch finds no GPU",
    fix=Fix("start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility", safety="restarts"),
    confirm="echo $NVIDIA_DRIVER_CAPABILITIES; ldconfig -p | grep libcuda",
    source="NVIDIA Container Toolkit documentation, driver capabilities",
    because=("CTR001",),
)
def capabilities_lack_compute(machine: Snapshot) -> Iterator[Evidence]:
    """NVIDIA_DRIVER_CAPABILITIES is set in a container and names neither compute nor all.

    Silent where it is unset or empty (the toolkit then gives compute), and where a libcuda is there all the same, as
    with CDI.
    """
    container, driver = machine.container, machine.driver
    if container is None or container.kind is None or not container.driver_capabilities or look.unwanted(machine):
        return
    names = {name.strip() for name in container.driver_capabilities.split(",")}
    if names & {"all", "compute"} or look.start_error(machine) == 0:
        return
    if driver is not None and driver.libcuda_paths and driver.compat_path is None:
        return
    yield Evidence(
        where="NVIDIA_DRIVER_CAPABILITIES",
        what="capabilities",
        seen=container.driver_capabilities,
        wanted="compute among them",
        confidence="certain" if driver is not None and driver.libcuda_paths is not None else "likely",
    )


@rule(
    "CTR003",
    "checkpoints-in-container-layer",
    Severity.WARNING,
    why="what is written there is gone with the container, and every write goes through the slow layered file system",
    fix=Fix("mount a volume there: docker run -v /path/on/host:/path …", safety="restarts"),
    confirm="findmnt -T .",
    source="Docker documentation, storage, writable layer",
)
def checkpoints_in_container_layer(machine: Snapshot) -> Iterator[Evidence]:
    """The working folder, or the checkpoint folder named, is on the container's own writable layer.

    Silent on mounted volumes, and outside containers.
    """
    container = machine.container
    if container is None or container.kind is None:
        return
    for folder in container.writable_layer:
        yield Evidence(where=folder, what="file system", seen="the container's own layer", wanted="a mounted volume")


@rule(
    "CTR004",
    "image-wants-newer-driver",
    Severity.ERROR,
    why="the image is of a newer CUDA than the host's driver gives: the engine refuses it, or CUDA does not start",
    fix=(
        Fix("update the host's driver", safety="needs root"),
        Fix("or take an image of an older CUDA", safety="restarts"),
    ),
    confirm="nvidia-smi; echo $NVIDIA_REQUIRE_CUDA",
    source="NVIDIA Container Toolkit documentation, constraints",
    because=("DRV003",),
)
def image_wants_newer_driver(machine: Snapshot) -> Iterator[Evidence]:
    """NVIDIA_REQUIRE_CUDA asks for more than the driver gives, or the engine refused the image for it.

    Silent with NVIDIA_DISABLE_REQUIRE, where CUDA started, and where any alternative of the requirement may be met.
    """
    container, driver = machine.container, machine.driver
    if container is None:
        return
    refused = re.search(r"unsatisfied condition: (\S+)", container.runtime_error or "")
    offered = driver.cuda_version if driver is not None else None
    version = (driver.module_version or driver.library_version) if driver is not None else None
    if refused:
        yield Evidence(
            what="the engine refused the image",
            seen=f"CUDA {offered}" if offered else "an older CUDA",
            wanted=refused[1].rstrip(",."),
        )
        return
    if container.kind is None or container.disable_require or look.start_error(machine) == 0:
        return
    if container.require_cuda and _unmet(container.require_cuda, offered, version):
        yield Evidence(
            where="NVIDIA_REQUIRE_CUDA",
            what="CUDA of the driver",
            seen=f"{offered or 'unknown'} (driver {version or 'unknown'})",
            wanted=container.require_cuda.split()[0],
        )


def _unmet(requirement: str, offered: str | None, version: str | None) -> bool:
    """Blanks part alternatives, commas what one asks together. What is not judged (`brand=tesla`) may be met."""
    have = {"cuda": offered, "driver": version}
    alternatives = requirement.split()
    return bool(alternatives) and all(
        any(_false(condition, have) for condition in alternative.split(",")) for alternative in alternatives
    )


def _false(condition: str, have: dict[str, str | None]) -> bool:
    found = re.fullmatch(r"(cuda|driver)(>=|<=|!=|<|>|=)([\d.]+)", condition)
    value = have.get(found[1]) if found else None
    if found is None or value is None:
        return False
    left, right = cuda.numbers(value), cuda.numbers(found[3])
    held = {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}
    return not held.get(found[2], (left == right) == (found[2] == "="))


@rule(
    "CTR005",
    "no-rdma-in-container",
    Severity.WARNING,
    why="NCCL falls back to TCP between nodes, at a fraction of the speed",
    fix=Fix(
        "start it with --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1; in Kubernetes, ask for the "
        "RDMA device plugin's resource",
        safety="restarts",
    ),
    confirm="ls /sys/class/infiniband /dev/infiniband",
    source="NCCL user guide, troubleshooting, Docker",
)
def no_rdma_in_container(machine: Snapshot) -> Iterator[Evidence]:
    """The host has RDMA devices, and the container has no /dev/infiniband.

    Silent where none of their ports is active, and where the policy says that jobs have one node.
    """
    container = machine.container
    if container is None or container.kind is None or machine.expected.nodes == 1:
        return
    if not container.infiniband_in_host or container.infiniband_nodes is not False:
        return
    ports = machine.network.rdma_ports if machine.network is not None else None
    if ports and not any(port.state == "ACTIVE" for port in ports):
        return
    yield Evidence(where="/dev/infiniband", what="RDMA devices", seen="missing", wanted="those of the host")


_NO_RUNTIME = re.compile(r"[Uu]nknown (?:or invalid )?runtime (?:name|specified):? nvidia|no known GPU vendor found")


@rule(
    "CTR006",
    "no-gpu-runtime",
    Severity.ERROR,
    why="the container engine knows no way to hand out GPUs: NVIDIA's toolkit is not installed or not configured",
    fix=Fix(
        "install nvidia-container-toolkit on the host, then configure Docker for it",
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        safety="needs root",
    ),
    confirm="docker info | grep -i runtimes",
    source="NVIDIA Container Toolkit documentation, installation and configuration",
)
def no_gpu_runtime(machine: Snapshot) -> Iterator[Evidence]:
    """The engine refused to start a container for want of a GPU runtime: could not select device driver … [[gpu]].

    Silent for its other refusals.
    """
    error = (machine.container.runtime_error if machine.container is not None else None) or ""
    if ("could not select device driver" in error and "gpu" in error) or _NO_RUNTIME.search(error):
        yield Evidence(what="the engine", seen=error.strip(), wanted="a runtime for GPUs")


RULES: tuple[Rule[Snapshot], ...] = (
    container_without_gpu,
    capabilities_lack_compute,
    checkpoints_in_container_layer,
    image_wants_newer_driver,
    no_rdma_in_container,
    no_gpu_runtime,
)
