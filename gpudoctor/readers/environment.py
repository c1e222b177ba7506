"""Read environment variables: `env`, export lines, Dockerfiles, `docker run -e`, launch lines, os.environ in Python.

The probe uses it too: which names are taken, and which never, is the same for this machine and for a paste.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.container import Container
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.libraries import Libraries
from gpudoctor.snapshot import Snapshot

NAME = "environment variables"

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

LONGEST_LINE = 4000
_VALUE = r"(?:\"[^\"\n]{0,2000}\"|'[^'\n]{0,2000}'|[^\s\"'`;&|<>()]{0,2000})"
_SET = rf"([A-Z][A-Z0-9_a-z]{{1,60}})=({_VALUE})"
_PROMPT = r"(?:\([\w.-]{1,40}\) ?)?(?:[\w.-]{1,40}@[\w.-]{1,60}[^\n$#]{0,80})?[$#] "
_ASSIGNMENT = re.compile(_SET)
_LINE = re.compile(
    rf"\s{{0,24}}(?:{_PROMPT})?(?:(?P<word>export|declare -x|ENV|set|setx|env|sudo|Environment=|- )\s{{0,4}})?['\"]?"
    rf"(?P<all>{_SET}(?:\s{{1,4}}{_SET}){{0,40}})['\"]?"
)
_NO_ASSIGNMENT = re.compile(
    r"\s{0,24}(?:ENV ([A-Z][A-Z0-9_]{1,60}) (\S{1,400})|\$env:([A-Za-z]\w{1,60}) ?= ?[\"']?([^\"'\n]{0,400})[\"']?)\s*$"
)
_PYTHON = re.compile(
    r"os\.environ(?:\[|\.setdefault\()['\"]([A-Z]\w{1,60})['\"](?:\] ?= ?|, ?)['\"]([^'\"\n]{0,400})['\"]"
)
_OPTION = re.compile(rf"\s(?:-e|--env|-x)[ =]['\"]?{_SET}")
_ECHO = re.compile(r"\becho [\"']?\$\{?([A-Z]\w{1,60})\}?[\"']?\s{0,8}$")
_COMMAND = re.compile(
    r"\s{1,4}(?:\\$|python|torchrun|accelerate|deepspeed|mpirun|srun|bash|sh |uv |vllm|nohup|\./|/\S)"
    r"|\s{0,4}(?:#.{0,200}|[;&]{1,2}.{0,200}|\\)?$"
)
_ADVICE = re.compile(r"(?:passing|setting|set|with|using|try|use|variable|e\.g\.|flag)[:,]?\s*$", re.IGNORECASE)


def is_taken(name: str, value: str) -> bool:
    """Known to change how a job runs, and no secret."""
    return (name in NAMES or name.startswith(PREFIXES)) and not is_secret(name, value)


def is_secret(name: str, value: str) -> bool:
    """By its name, or since the value holds a password."""
    return SECRET_NAME.search(name) is not None or SECRET_VALUE.search(value) is not None


def read(text: str) -> Snapshot | None:
    """Variables that are set, never ones that a sentence only speaks of; the last setting of a name counts."""
    told = dict(_settings(text)) if "=" in text or "echo" in text or "ENV " in text else {}
    variables = {name: value for name, value in sorted(told.items()) if is_taken(name, value)}
    if not variables:
        return None
    folders = tuple(folder for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder)
    home = told.get("CUDA_HOME") or told.get("CUDA_PATH")
    return Snapshot(
        environment=Environment(variables=variables),
        libraries=Libraries(ld_library_path=folders, cuda_home=home) if folders or home else None,
        container=_container(variables),
    )


def _container(variables: dict[str, str]) -> Container | None:
    """What a container was given; that it is one, the variables alone do not tell."""
    names = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA")
    visible, capabilities, require = (variables.get(name) for name in names)
    if (visible, capabilities, require) == (None, None, None):
        return None
    return Container(visible_devices=visible, driver_capabilities=capabilities, require_cuda=require)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    asked: str | None = None
    before = ""
    for line in text.splitlines():
        if asked is not None and line.strip() and "=" not in line and not line.startswith(("$", "#")):
            yield asked, line.strip()
        asked = None
        if len(line) <= LONGEST_LINE:
            if "echo" in line and (echoed := _ECHO.search(line)):
                asked = echoed[1]
            elif "=" in line or "ENV " in line or "environ" in line:
                yield from _set_by(line, before)
        before = line[-200:]


def _set_by(line: str, before: str) -> Iterator[tuple[str, str]]:
    if "environ" in line:
        yield from ((match[1], match[2]) for match in _PYTHON.finditer(line))
    elif named := _NO_ASSIGNMENT.match(line):
        yield (named[1] or named[3]), (named[2] or named[4] or "").strip()
    else:
        if " -" in line:
            yield from ((match[1], _bare(match[2])) for match in _OPTION.finditer(line))
        yield from _assigned(line, before)


def _assigned(line: str, before: str) -> Iterator[tuple[str, str]]:
    """`NAME=value`, several of them before a command too; not in a sentence, nor as the advice of the line before."""
    match = _LINE.match(line)
    if match is None or _ADVICE.search(before):
        return
    if match["word"] is None and _COMMAND.match(line[match.end() :]) is None:
        return
    yield from ((one[1], _bare(one[2])) for one in _ASSIGNMENT.finditer(match["all"]))


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
