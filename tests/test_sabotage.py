"""Real faults planted on a real machine, one by one and all together: each is found by its code.

Every case runs the real command in a mount namespace of its own, so that what it breaks is its own. No GPU is needed:
what a GPU would tell is tested on recordings. Needs root for the namespaces.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "geteuid")
        or os.geteuid() != 0
        or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0,
        reason="mount namespaces need root",
    ),
]


@dataclass(frozen=True)
class Fault:
    """One thing wrong. `shell` runs in the namespace before the check, `stubs` are files of a made-up environment."""

    codes: str
    environ: dict[str, str] = field(default_factory=dict)
    shell: str = ""
    stubs: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("--quick",)
    alone: bool = False
    """It excludes others, so it is left out where all are planted together."""


CUDA_TORCH = {
    "site/torch/__init__.py": "",
    "site/torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\nhip = None\n",
    "site/torch-2.11.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu130\n",
}


def _package(name: str, version: str, *requires: str) -> dict[str, str]:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    folder = name.replace("-", "_")
    return {f"site/{folder}-{version}.dist-info/METADATA": "\n".join(lines) + "\n", f"site/{folder}/__init__.py": ""}


SMALL_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
LISTENER = (
    '{python} -c \'import socket, threading; s = socket.create_server(("127.0.0.1", 29731)); print(1, flush=True);'
    " threading.Event().wait()' > listening & end=$!; trap 'kill $end' EXIT; until [ -s listening ]; do :; done"
)

FAULTS: dict[str, Fault] = {
    "the shared memory Docker gives": Fault("SHM001", shell=SMALL_SHM),
    "shared memory that no batch fits through": Fault(
        "SHM004",
        shell="mount -t tmpfs -o size=16m tmpfs /dev/shm",
        options=("--deep", "--only", "SHM004"),
        alone=True,
    ),
    "shared memory that is full": Fault(
        "SHM002",
        shell="mount -t tmpfs -o size=1g tmpfs /dev/shm; fallocate -l 1g /dev/shm/batch",
        alone=True,
    ),
    "shared memory that is nearly full": Fault(
        "SHM005",
        shell="mount -t tmpfs -o size=1g tmpfs /dev/shm; fallocate -l 900m /dev/shm/batch",
        alone=True,
    ),
    "files a dead trainer left in shared memory": Fault(
        "SHM003", shell=f"{SMALL_SHM}; fallocate -l 8m /dev/shm/torch_999999_123_0", alone=True
    ),
    "few open files": Fault("SYS001", shell="ulimit -n 1024"),
    "few processes": Fault("SYS003", shell="ulimit -u 200"),
    "threads times ranks beyond the CPUs": Fault(
        "SYS008", {"OMP_NUM_THREADS": "64", "LOCAL_WORLD_SIZE": "8"}, alone=True
    ),
    "a disk that is nearly full": Fault(
        "SYS009",
        shell="mkdir full; mount -t tmpfs -o size=100m tmpfs full; fallocate -l 98m full/checkpoint",
        options=("--quick", "--checkpoint-dir", "full"),
    ),
    "serialised launches": Fault("ENV002", {"CUDA_LAUNCH_BLOCKING": "1"}),
    "an allocator setting that is none": Fault("ENV003", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segment:True"}),
    "debug output of every call": Fault("ENV004", {"NCCL_DEBUG": "TRACE"}),
    "one GPU named twice": Fault("ENV001", {"CUDA_VISIBLE_DEVICES": "0,0"}),
    "peer access switched off": Fault("NCC001", {"NCCL_P2P_DISABLE": "1"}),
    "shared memory switched off": Fault("NCC002", {"NCCL_SHM_DISABLE": "1"}),
    "a misspelt NCCL variable": Fault("NCC005", {"NCCL_SOKET_FAMILY": "AF_INET"}),
    "too many sockets": Fault("NCC007", {"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}),
    "an interface that is not there": Fault("NCC008", {"GLOO_SOCKET_IFNAME": "ib7"}),
    "several nodes over the loopback interface": Fault(
        "NCC018", {"NCCL_SOCKET_IFNAME": "lo", "SLURM_NNODES": "2", "SLURM_JOB_NUM_NODES": "2"}
    ),
    "a master that does not resolve": Fault(
        "NET002", {"MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "29500"}, alone=True
    ),
    "a master port that is taken": Fault(
        "NET003", {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731"}, shell=LISTENER
    ),
    "a rank beyond the world": Fault(
        "NET004",
        {"RANK": "5", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731"},
        alone=True,
    ),
    "TF32 forced from outside": Fault("PRE004", {"NVIDIA_TF32_OVERRIDE": "1"}),
    "a CUDA torch without a driver": Fault("DRV001", stubs=CUDA_TORCH),
    "a stubs folder in the library path": Fault(
        "DRV006", shell="export LD_LIBRARY_PATH=$PWD/stubs", stubs={**CUDA_TORCH, "stubs/libcuda.so": ""}, alone=True
    ),
    "an environment without torch": Fault("TOR001", shell="{python} -m venv --without-pip bare", alone=True),
    "a torch whose library is missing": Fault(
        "TOR002",
        stubs={"site/torch/__init__.py": "raise ImportError('libcudnn.so.9: cannot open shared object file')"},
        options=("--only", "TOR"),
        alone=True,
    ),
    "a torch that dies by a signal": Fault(
        "TOR002",
        stubs={"site/torch/__init__.py": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"},
        options=("--only", "TOR"),
        alone=True,
    ),
    "a torch that never ends its import": Fault(
        "TOR002",
        stubs={"site/torch/__init__.py": "from threading import Event; Event().wait()"},
        options=("--only", "TOR", "--timeout", "6"),
        alone=True,
    ),
    "a torch for the CPU": Fault(
        "TOR003",
        stubs={"site/torch/version.py": "__version__ = '2.11.0+cpu'\ncuda = None\n", **_package("torch", "2.11.0+cpu")},
        alone=True,
    ),
    "a torchvision of another torch": Fault(
        "TOR006", stubs={**CUDA_TORCH, **_package("torchvision", "0.24.1", "torch==2.9.1")}
    ),
    "a torchaudio of another torch": Fault(
        "TOR007", stubs={**CUDA_TORCH, **_package("torchaudio", "2.9.1", "torch==2.9.1")}
    ),
    "cuDNN for two CUDA generations": Fault(
        "LIB005",
        stubs={
            **CUDA_TORCH,
            **_package("nvidia-cudnn-cu12", "9.10.2.21"),
            "site/nvidia_cudnn_cu12-9.10.2.21.dist-info/RECORD": "nvidia/cudnn/lib/libcudnn.so.9,,4\n",
            **_package("nvidia-cudnn-cu13", "9.19.0.56"),
            "site/nvidia_cudnn_cu13-9.19.0.56.dist-info/RECORD": "nvidia/cudnn/lib/libcudnn.so.9,,4\n",
            "site/nvidia/cudnn/lib/libcudnn.so.9": "ELF.",
        },
    ),
    "a library cut off while it was unpacked": Fault(
        "LIB007",
        stubs={
            **CUDA_TORCH,
            **_package("nvidia-nccl-cu13", "2.28.9"),
            "site/nvidia_nccl_cu13-2.28.9.dist-info/RECORD": "nvidia/nccl/lib/libnccl.so.2,,4000\n",
            "site/nvidia/nccl/lib/libnccl.so.2": "ELF.",
        },
    ),
    "a container engine's socket in a container": Fault(
        "SEC005",
        shell="{container}; {python} -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/docker.sock\")'",
        alone=True,
    ),
    "a container whose GPUs are hidden": Fault(
        "CTR001", {"NVIDIA_VISIBLE_DEVICES": "void"}, shell="{container}", stubs=CUDA_TORCH, alone=True
    ),
}

CONTAINER = "mount -t tmpfs tmpfs /run; mkdir -p /run; touch /run/.containerenv"


def _found(report: dict[str, Any], least: tuple[str, ...] = ("error", "warning")) -> set[str]:
    """Codes of findings, those folded under a cause included."""
    told = [finding for finding in report["findings"] if finding["severity"] in least]
    return {finding["code"] for finding in told} | {code for finding in told for code in finding["consequences"]}


def _check(
    folder: Path, *, environ: dict[str, str], shell: list[str], stubs: dict[str, str], options: list[str]
) -> dict[str, Any]:
    for name, text in stubs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = "bare/bin/python" if any("venv" in line for line in shell) else sys.executable
    check = [sys.executable, "-m", "gpudoctor", "check", "--format", "json", "--fail-on", "never"]
    lines = ["set -e", "mount --make-rprivate /", "mount -t tmpfs -o size=2g tmpfs /dev/shm"]
    lines += [line.format(python=shlex.quote(sys.executable), container=CONTAINER) for line in shell]
    lines += [shlex.join([*check, "--python", python, *options])]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", "\n".join(lines)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(folder / "site"), **environ},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_code(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    report = _check(
        tmp_path, environ=fault.environ, shell=[fault.shell], stubs=fault.stubs, options=list(fault.options)
    )
    assert fault.codes in _found(report)


def test_all_faults_together_are_all_found(tmp_path: Path) -> None:
    planted = [fault for fault in FAULTS.values() if not fault.alone]
    options = list(dict.fromkeys(option for fault in planted for option in fault.options))
    report = _check(
        tmp_path,
        environ={name: value for fault in planted for name, value in fault.environ.items()},
        shell=[fault.shell for fault in planted],
        stubs={name: text for fault in planted for name, text in fault.stubs.items()},
        options=options,
    )
    assert {fault.codes for fault in planted} - _found(report) == set()


def test_at_least_twenty_kinds_of_fault_are_planted() -> None:
    assert len({fault.codes for fault in FAULTS.values()}) >= 20


POLICY = '[expect]\ndevice = "cpu"\n'

HEALTHY: dict[str, dict[str, Any]] = {
    "a machine for training on the CPU": {},
    "a rank of a torchrun job with settings people use": {
        "environ": {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29732",
            "OMP_NUM_THREADS": "1",
            "NCCL_DEBUG": "WARN",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }
    },
    "a container with a shared memory of its own": {
        "shell": [
            f"{CONTAINER}; mount -t tmpfs -o size=8g tmpfs /dev/shm; mkdir work; mount -t tmpfs tmpfs work; cd work"
        ]
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_set_up_raises_nothing_above_info(name: str, tmp_path: Path) -> None:
    policy = tmp_path / "gpudoctor.toml"
    policy.write_text(POLICY)
    setup = HEALTHY[name]
    report = _check(
        tmp_path,
        environ=setup.get("environ", {}),
        shell=['ulimit -n "$(ulimit -Hn)"', *setup.get("shell", [])],
        stubs={},
        options=["--policy", str(policy)],
    )
    assert _found(report) == set()
    assert report["verdict"] == "ok"


def test_the_tools_the_faults_need_are_here() -> None:
    assert [tool for tool in ("bash", "fallocate", "mount", "unshare") if shutil.which(tool) is None] == []
