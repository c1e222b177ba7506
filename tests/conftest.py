"""Machines the tests share."""

import msgspec
import pytest

from gpudoctor.facts.clock import Clock
from gpudoctor.facts.container import Container
from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.disks import Disks, Folder
from gpudoctor.facts.driver import DeviceNode, Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.exposure import Exposure
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.libraries import Libraries, WheelLibrary
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.measured import (
    CollectiveRate,
    Feature,
    GemmRate,
    HostLinkRate,
    LaunchLatency,
    Load,
    LoaderTrial,
    Measured,
    MemoryRate,
    PeerCopy,
)
from gpudoctor.facts.network import Interface, Network, RdmaPort
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.precision import Precision
from gpudoctor.facts.shm import Shm
from gpudoctor.facts.topology import GpuPair, NvLink, Topology
from gpudoctor.facts.torch import LoadedVersion, SmokeTest, TorchBuild, TorchRuntime
from gpudoctor.snapshot import Snapshot

GIB = 2**30


@pytest.fixture
def healthy() -> Snapshot:
    """Bare metal, 8 × H100 SXM with NVSwitch and InfiniBand, nothing wrong: every rule above info must be silent."""
    return Snapshot(
        taken_at="2026-12-01T12:00:00+00:00",
        host=Host(
            name="node1",
            system="Linux",
            kernel="6.8.0-45-generic",
            machine="x86_64",
            distribution="Ubuntu 24.04.1 LTS",
            wsl=False,
            virtual_machine=False,
            glibc="2.39",
        ),
        gpus=Gpus(boards=tuple(_h100(index) for index in range(8))),
        topology=Topology(
            nvlinks=tuple(
                NvLink(gpu=gpu, link=link, active=True, crc_errors=0, replay_errors=0, recovery_errors=0)
                for gpu in range(8)
                for link in range(18)
            ),
            pairs=tuple(
                GpuPair(first=first, second=second, path="NV18", peer_access=True, peer_status="ok")
                for first in range(8)
                for second in range(first + 1, 8)
            ),
            acs_bridges=(),
            iommu_mode="passthrough",
            nvswitches=4,
        ),
        driver=Driver(
            module_version="580.95.05",
            module_open=True,
            library_version="580.95.05",
            cuda_version="13.0",
            nvidia_smi_path="/usr/bin/nvidia-smi",
            device_nodes=tuple(
                DeviceNode(path=f"/dev/{name}", exists=True, accessible=True)
                for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(8)))
            ),
            pci_gpus=8,
            uvm_loaded=True,
            nouveau_loaded=False,
            fabric_manager_running=True,
            fabric_manager_version="580.95.05",
            libcuda_paths=("/usr/lib/x86_64-linux-gnu/libcuda.so.1",),
            cuda_error=0,
        ),
        torch=TorchBuild(
            installed=True,
            version="2.11.0+cu130",
            cuda="13.0",
            build="cuda",
            path="/opt/venv/lib/python3.12/site-packages/torch",
            python="/opt/venv/bin/python",
            python_version="3.12.3",
            python_tag="cp312",
            python_tags=("cp312-cp312-manylinux_2_28_x86_64",),
            path_python="/opt/venv/bin/python",
            arch_list=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
        ),
        torch_runtime=TorchRuntime(
            stage="done",
            import_s=3.1,
            version="2.11.0+cu130",
            cuda="13.0",
            cuda_available=True,
            device_count=8,
            arch_list=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
            capabilities=("9.0",) * 8,
            device_names=("NVIDIA H100 80GB HBM3",) * 8,
            libraries=(
                LoadedVersion(name="cudnn", compiled="9.19.0", loaded="9.19.0"),
                LoadedVersion(name="nccl", compiled="2.28.9", loaded="2.28.9"),
                LoadedVersion(name="cublas", loaded="13.1.0.3"),
            ),
            mapped=(),
            smoke=tuple(SmokeTest(device=index, ok=True, relative_error=1e-6) for index in range(8)),
            sdpa_backends=("flash", "efficient", "math", "cudnn"),
            cxx11_abi=True,
            torch_threads=112,
            precision=Precision(
                float32_matmul="high",
                matmul_allow_tf32=True,
                matmul_fp32_precision="tf32",
                cudnn_allow_tf32=True,
                bf16_native=True,
            ),
        ),
        packages=Packages(
            installed=(
                Package(name="numpy", version="2.5.2", compiled=True, imported=True),
                Package(
                    name="torchvision", version="0.26.0+cu130", requires_torch="==2.11.0", compiled=True, imported=True
                ),
                Package(name="triton", version="3.6.0", compiled=True, imported=True),
            ),
            compilers=("gcc",),
        ),
        libraries=Libraries(
            wheels=(
                WheelLibrary(package="nvidia-cudnn-cu13", version="9.19.0.56", library="cudnn", cuda_major=13),
                WheelLibrary(package="nvidia-nccl-cu13", version="2.28.9", library="nccl", cuda_major=13),
            ),
            system=(),
            damaged=(),
        ),
        container=Container(kind=None),
        shm=Shm(
            exists=True,
            writable=True,
            file_system="tmpfs",
            total_bytes=1000 * GIB,
            free_bytes=999 * GIB,
            inodes_free=10**6,
            stale=(),
            stale_bytes=0,
        ),
        limits=Limits(
            open_files=1048576,
            open_files_hard=1048576,
            locked_memory_unlimited=True,
            processes=8_000_000,
            processes_in_use=4000,
            oom_kills=0,
            memory_total_bytes=2000 * GIB,
            memory_available_bytes=1900 * GIB,
            cgroup_version=2,
        ),
        cpu=Cpu(
            model="Intel Xeon Platinum 8480C",
            count=224,
            cores=112,
            affinity=tuple(range(224)),
            cpuset=tuple(range(224)),
            governors=("performance",),
            scaling_drivers=("intel_pstate",),
            numa_nodes=2,
            numa_balancing=False,
        ),
        disks=Disks(
            folders=(
                Folder(
                    role="working",
                    path="/data/job",
                    file_system="ext4",
                    total_bytes=4000 * GIB,
                    free_bytes=3000 * GIB,
                    writable=True,
                ),
                Folder(
                    role="temporary",
                    path="/tmp",
                    file_system="ext4",
                    total_bytes=400 * GIB,
                    free_bytes=300 * GIB,
                    writable=True,
                ),
            )
        ),
        clock=Clock(synchronised=True, max_error_s=0.01),
        kernel_log=KernelLog(source="/dev/kmsg"),
        environment=Environment(),
        network=Network(
            host_name="node1",
            host_addresses=("10.0.0.1",),
            interfaces=(
                Interface(name="lo", up=True, loopback=True, addresses=("127.0.0.1",)),
                Interface(name="eth0", up=True, loopback=False, addresses=("10.0.0.1",), speed_mb_s=100000),
            ),
            rdma_ports=tuple(
                RdmaPort(device=f"mlx5_{index}", port=1, state="ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec")
                for index in range(8)
            ),
            peermem_loaded=True,
            dmabuf=True,
        ),
        exposure=Exposure(notebooks=(), sshd_running=True, sshd_password=False, sshd_root_login="prohibit-password"),
    )


@pytest.fixture
def worked(healthy: Snapshot) -> Snapshot:
    """The healthy machine after `check --deep`: the figures of an H200 for products and links, eight times."""
    figures = {"fp32": (50.0, 1.6e-6, 1.6e-5), "tf32": (394.0, 2.9e-4, 2.9e-3)}
    figures |= {"bf16": (692.0, 1.7e-3, 1.7e-2), "fp16": (691.0, 2.1e-4, 2.1e-3)}
    gpus = range(8)
    measured = Measured(
        gemm=tuple(
            GemmRate(
                gpu=gpu,
                format=name,
                size=8192,
                # Boards differ by some percent, which means nothing.
                tflops=rate * (1 - 0.01 * (gpu % 5)),
                spread=0.01,
                relative_error=error,
                bound=bound,
                correct=True,
                repeatable=True,
            )
            for gpu in gpus
            for name, (rate, error, bound) in figures.items()
        ),
        memory=tuple(MemoryRate(gpu=gpu, gb_s=2890.0 + gpu, spread=0.002) for gpu in gpus),
        host_links=tuple(
            HostLinkRate(gpu=gpu, to_gpu=to_gpu, pinned=pinned, gb_s=55.0 if pinned else 9.0)
            for gpu in gpus
            for to_gpu in (True, False)
            for pinned in (True, False)
        ),
        launches=tuple(LaunchLatency(gpu=gpu, us=7.5) for gpu in gpus),
        loads=tuple(
            Load(
                gpu=gpu,
                stage=stage,
                pcie_generation=5,
                pcie_width=16,
                clock_sm_mhz=1755,
                power_w=690.0,
                temperature_c=61,
                throttle_reasons=("sw_power_cap",),
            )
            for gpu in gpus
            for stage in ("gemm", "host_link")
        ),
        peers=tuple(
            PeerCopy(first=first, second=second, gb_s=390.0, intact=True, access=True)
            for first in gpus
            for second in gpus
            if first != second
        ),
        collectives=tuple(
            CollectiveRate(op="all_reduce", bytes=size, bus_gb_s=rate, backend="nccl", ranks=8, correct=True)
            for size, rate in ((2**20, 21.0), (2**30, 470.0))
        ),
        loaders=tuple(
            LoaderTrial(start_method=method, sharing="file_descriptor", batch_bytes=2**25, ok=True, batches_per_s=60.0)
            for method in ("fork", "spawn")
        ),
        features=(
            *(Feature(name=name, gpu=0, ok=True) for name in ("convolution", "attention math", "cuda_graph")),
            Feature(name="attention cudnn", gpu=0, ok=False, skipped="not available on this device"),
            Feature(name="compile", gpu=0, ok=True, duration_s=9.0),
        ),
        duration_s=48.0,
    )
    return msgspec.structs.replace(healthy, measured=measured)


def _h100(index: int) -> Gpu:
    near = tuple(range(112)) if index < 4 else tuple(range(112, 224))
    return Gpu(
        index=index,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
        compute_capability="9.0",
        pci_bus_id=f"00000000:{16 + index:02X}:00.0",
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_slot_width=16,
        pcie_replays=0,
        memory_total_bytes=81559 * 2**20,
        memory_used_bytes=0,
        memory_reserved_bytes=600 * 2**20,
        processes=(),
        utilization_ratio=0.0,
        temperature_c=31,
        power_w=70.0,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        clock_sm_mhz=345,
        clock_sm_max_mhz=1980,
        clock_application_mhz=1980,
        clock_application_default_mhz=1980,
        throttle_reasons=("gpu_idle",),
        performance_state=0,
        persistence_mode=True,
        compute_mode="default",
        mig_mode=False,
        ecc_mode=True,
        ecc_uncorrected_volatile=0,
        ecc_uncorrected_aggregate=0,
        ecc_corrected_volatile=0,
        row_remap_pending=False,
        row_remap_failed=False,
        row_remap_uncorrectable=0,
        recovery_action="none",
        inforom_corrupt=False,
        fabric_state="completed",
        fabric_status="success",
        fabric_health="healthy",
        numa_node=0 if index < 4 else 1,
        cpu_affinity=near,
    )
