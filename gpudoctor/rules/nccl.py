"""NCCL's variables by themselves; gpudoctor/rules/nccl_network.py judges them against the network."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.environment import Environment
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import nccl_log, nccl_network
from gpudoctor.rules.launch import number, one_gpu_at_most, without_gpus
from gpudoctor.snapshot import Snapshot

GUIDE = "NVIDIA NCCL user guide, Environment Variables"


@rule(
    "NCC001",
    "p2p-disabled",
    Severity.WARNING,
    why="GPUs of one node then talk through host memory: on NVLink that costs most of the bandwidth",
    fix=Fix("unset it unless peer access is known to fail here", "unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL"),
    confirm="echo $NCCL_P2P_DISABLE $NCCL_P2P_LEVEL; cat /etc/nccl.conf ~/.nccl.conf",
    source=GUIDE,
)
def p2p_disabled(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_P2P_DISABLE is 1, or NCCL_P2P_LEVEL is LOC (or 0).

    Silent with one GPU, and where the driver refuses peer access between all pairs anyway. NCCL takes other values of
    NCCL_P2P_DISABLE, `true` among them, as 0.
    """
    environment = machine.environment
    if environment is None or one_gpu_at_most(machine):
        return
    pairs = machine.topology.pairs if machine.topology else None
    if pairs and all(pair.peer_access is False for pair in pairs):
        return
    if number(environment.get("NCCL_P2P_DISABLE")) == 1:
        yield nccl_network.value(environment, "NCCL_P2P_DISABLE", "unset or 0")
    if (environment.get("NCCL_P2P_LEVEL") or "").upper() in {"LOC", "0"}:
        yield nccl_network.value(environment, "NCCL_P2P_LEVEL", "unset: NCCL chooses by topology")


@rule(
    "NCC002",
    "shm-disabled",
    Severity.WARNING,
    why="ranks of one node that have no peer access then talk through the network",
    fix=Fix("unset it; give /dev/shm more room if that was the reason", "unset NCCL_SHM_DISABLE"),
    confirm="echo $NCCL_SHM_DISABLE; cat /etc/nccl.conf ~/.nccl.conf",
    source=GUIDE,
)
def shm_disabled(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_SHM_DISABLE is 1.

    Silent with one GPU. NCCL takes words as 0.
    """
    environment = machine.environment
    if environment is None or one_gpu_at_most(machine):
        return
    if number(environment.get("NCCL_SHM_DISABLE")) == 1:
        yield nccl_network.value(environment, "NCCL_SHM_DISABLE", "unset or 0")


@rule(
    "NCC004",
    "nvls-disabled",
    Severity.INFO,
    why="all-reduce over NVSwitch then runs without the switches' own adders, at about four fifths of its bandwidth",
    fix=Fix("unset it unless NVLS is known to fail here", "unset NCCL_NVLS_ENABLE"),
    confirm="echo $NCCL_NVLS_ENABLE",
    source="ml-engineering, network: 8-GPU all-reduce on H200 and B200 loses 19 to 24 % of its bus bandwidth",
)
def nvls_disabled(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_NVLS_ENABLE is 0.

    Silent with one GPU, without NVSwitch, and on cards older than Hopper, which have no NVLS.
    """
    environment = machine.environment
    if environment is None or one_gpu_at_most(machine):
        return
    if machine.topology is not None and machine.topology.nvswitches == 0:
        return
    capabilities = [board.compute_capability for board in machine.gpus.boards] if machine.gpus else []
    if any(capability is not None and number(capability) < 9 for capability in capabilities):
        return
    setting = environment.get("NCCL_NVLS_ENABLE")
    if setting is not None and re.fullmatch(r"\s*0+\s*", setting):
        yield nccl_network.value(environment, "NCCL_NVLS_ENABLE", "unset: 2, on where it works")


@rule(
    "NCC005",
    "unknown-variable",
    Severity.WARNING,
    why="NCCL and torch skip a name they do not know without a word, so what was meant does not happen",
    fix=Fix("correct the name, or unset it"),
    confirm="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV python train.py  # lists what NCCL has taken",
    source="NVIDIA NCCL user guide 2.30, Environment Variables, and the parameters in NCCL 2.30.7's source",
)
def unknown_variable(machine: Snapshot) -> Iterator[Evidence]:
    """A variable NCCL_… or TORCH_NCCL_… that neither NCCL nor torch reads, with the nearest name that is read.

    Silent for names of plugins and of other builds of NCCL, build systems' NCCL_HOME and kin, NCCL_VERSION (a label of
    NVIDIA's images), the variables Kubernetes makes of services, and on ROCm. An info, likely, where no name is near:
    it may be of a newer NCCL or a framework's own.
    """
    environment = machine.environment
    if environment is None or (machine.torch is not None and machine.torch.build == "rocm"):
        return
    names = [name for name in _names(environment) if name.startswith(("NCCL_", "TORCH_NCCL_"))]
    if not names:
        return
    import difflib

    from gpudoctor.tables.nccl import table

    known = table().known()
    for name in names:
        if name in known or table().foreign(name) or KUBERNETES_SERVICE.search(name):
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.85)
        if near or name.startswith("NCCL_"):
            yield Evidence(
                where=name,
                what="name",
                seen=name,
                wanted=near[0] if near else "a name NCCL reads",
                severity=None if near else Severity.INFO,
                confidence="certain" if near else "likely",
            )


# A service called nccl-test gives each pod NCCL_TEST_SERVICE_HOST, NCCL_TEST_PORT_80_TCP_ADDR, …
KUBERNETES_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP)|$)")


def _names(environment: Environment) -> list[str]:
    return sorted({*environment.variables, *environment.nccl_config})


@rule(
    "NCC006",
    "renamed-variable",
    Severity.INFO,
    why="an old name works for a while at best, and then silently no more",
    fix=Fix("use the new name"),
    confirm="env | grep NCCL_",
    source="NVIDIA NCCL user guide 2.30, Environment Variables; PyTorch 2.14, ProcessGroupNCCL.hpp",
)
def renamed_variable(machine: Snapshot) -> Iterator[Evidence]:
    """A variable of NCCL, or of torch under NCCL's prefix, has been renamed, deprecated or removed."""
    names = [name for name in _names(machine.environment) if name.startswith("NCCL_")] if machine.environment else []
    if not names:
        return
    from gpudoctor.tables.nccl import table

    for row in table().renamed:
        if row.name in names:
            yield Evidence(
                where=row.name,
                what=row.status,
                seen=row.name,
                wanted=row.to or "unset",
                source=table().sources[row.source],
            )


@rule(
    "NCC007",
    "too-many-sockets",
    Severity.WARNING,
    why="NCCL lowers the values by itself, and every helper thread takes a CPU from the loaders",
    fix=Fix("stay within the limits, or let NCCL choose", "unset NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD"),
    confirm="echo $NCCL_SOCKET_NTHREADS $NCCL_NSOCKS_PERTHREAD",
    source="NVIDIA NCCL user guide, NCCL_SOCKET_NTHREADS; NCCL 2.30.7, src/transport/net_socket.cc",
)
def too_many_sockets(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_SOCKET_NTHREADS is above 16, or its product with NCCL_NSOCKS_PERTHREAD above 64.

    Silent where the product cannot be known because only one of them is set.
    """
    environment = machine.environment
    threads = number(environment.get("NCCL_SOCKET_NTHREADS")) if environment else 0
    if environment is None or threads <= 0:
        return
    from gpudoctor.tables.nccl import table

    limits, each = table().limits, number(environment.get("NCCL_NSOCKS_PERTHREAD"))
    if threads > limits.socket_threads:
        yield nccl_network.value(environment, "NCCL_SOCKET_NTHREADS", f"{limits.socket_threads} at most")
    if threads * each > limits.sockets:
        yield Evidence(
            where="NCCL_SOCKET_NTHREADS",
            what="× NCCL_NSOCKS_PERTHREAD",
            seen=f"{threads} × {each} = {threads * each}",
            wanted=f"{limits.sockets} at most",
        )


@rule(
    "NCC014",
    "duplicate-gpu",
    Severity.ERROR,
    why="NCCL refuses two ranks on one device, and a rank without a device of its own cannot start",
    fix=Fix("start as many ranks as there are GPUs", "torchrun --nproc-per-node=gpu train.py"),
    confirm="echo $LOCAL_WORLD_SIZE; nvidia-smi -L",
    source="NCCL 2.30.7, src/init.cc: Duplicate GPU detected",
)
def duplicate_gpu(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL refuses two ranks on one device, or a launcher has started more ranks on this node than it has GPUs.

    The latter is likely, since the job may train on CPUs, and silent where a rank may see only its own share
    (CUDA_VISIBLE_DEVICES set, Slurm), with MIG on, and where NCCL_MULTI_RANK_GPU_ENABLE allows it.
    """
    yield from nccl_log.duplicates(machine)
    environment = machine.environment
    if environment is None or machine.gpus is None or without_gpus(machine):
        return
    hidden = {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_PROCID"} & environment.variables.keys()
    mig = any(board.mig_mode for board in machine.gpus.boards)
    if hidden or mig or number(environment.get("NCCL_MULTI_RANK_GPU_ENABLE")):
        return
    ranks, boards = environment.number("LOCAL_WORLD_SIZE"), len(machine.gpus.boards)
    if ranks is not None and ranks > boards:
        yield Evidence(
            where="LOCAL_WORLD_SIZE",
            what="ranks on this node",
            seen=f"{ranks} on {boards} GPU{'s' if boards > 1 else ''}",
            wanted=f"{boards} at most",
            confidence="likely",
        )


RULES: tuple[Rule[Snapshot], ...] = (
    p2p_disabled,
    shm_disabled,
    nccl_network.ib_disabled,
    nvls_disabled,
    unknown_variable,
    renamed_variable,
    too_many_sockets,
    nccl_network.no_such_interface,
    nccl_network.ib_port_down,
    nccl_network.no_gpudirect,
    nccl_network.no_rdma,
    duplicate_gpu,
    nccl_network.loopback_interface,
    *nccl_log.RULES,
)
