"""Read the environment variables that change a training job, and NCCL's configuration files."""

from __future__ import annotations

import re

from gpudoctor.facts.environment import Environment
from gpudoctor.probes.system import System

PREFIXES = (
    *("CUDA_", "CUBLAS_", "NVIDIA_", "NCCL_", "RCCL_", "TORCH", "PYTORCH_", "TRITON_", "GLOO_"),
    *("OMP_", "MKL_", "KMP_", "FI_", "UCX_"),
    *("GROUP_", "PET_", "OMPI_COMM_WORLD_", "PMI_", "SLURM_GPUS", "SLURM_NTASKS"),
)
NAMES = frozenset(
    (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "OMPI_MCA_orte_num_nodes"),
        *("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"),
        *("SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
        *("SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"),
        *("SLURM_MEM_PER_NODE", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    )
)
# Known prefixes are not enough: a user may well name his own TORCH_HUB_TOKEN. Partition keys are no secret.
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|JWT|COOKIE|AUTH|(?<!_P)KEY", re.IGNORECASE)
SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@")


def read(system: System) -> Environment:
    """Variables by known name alone, never one that looks like a secret."""
    taken = {name: value for name, value in system.environ.items() if _is_taken(name, value)}
    unread: dict[str, str] = {}
    return Environment(
        variables={_decodable(name): _decodable(value) for name, value in sorted(taken.items())},
        nccl_config=_nccl_config(system, unread),
        undecodable=tuple(sorted(_decodable(name) for name, value in taken.items() if _decodable(value) != value)),
        unread=unread,
    )


def _is_taken(name: str, value: str) -> bool:
    return (name in NAMES or name.startswith(PREFIXES)) and not _is_secret(name, value)


def _is_secret(name: str, value: str) -> bool:
    return SECRET_NAME.search(name) is not None or SECRET_VALUE.search(value) is not None


def _decodable(text: str) -> str:
    """What came in as surrogates stands as U+FFFD: JSON has no place for raw bytes."""
    return text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")


def _nccl_config(system: System, unread: dict[str, str]) -> dict[str, str]:
    """As NCCL reads it: the user's file first, then /etc/nccl.conf, and the first value of a name stays.

    Source: NVIDIA/nccl 2.30.7, src/misc/param.cc.
    """
    settings: dict[str, str] = {}
    named = system.environ.get("NCCL_CONF_FILE")
    home = system.environ.get("HOME")
    own = named or (f"{home}/.nccl.conf" if home else None)
    for path in (own, "/etc/nccl.conf"):
        if path is None:
            continue
        try:
            if not system.path(path).is_file():  # a pipe by that name would hold the probe up
                if path == named:
                    unread["nccl_config"] = f"NCCL_CONF_FILE: {_decodable(path)} is no file"
                continue
            text = system.text(path)
        except OSError as error:
            unread["nccl_config"] = f"{_decodable(path)}: {error.strerror}"
            continue
        for name, value in re.findall(r"^(NCCL_\w+)=(.*)$", text, re.MULTILINE):
            if not _is_secret(name, value):
                settings.setdefault(name, _decodable(value))
    return settings
