"""Launch variables of CUDA and torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.launch import number, without_gpus
from gpudoctor.snapshot import Snapshot

HIDING = frozenset({"", "-1", "NoDevFiles", "none", "void"})
"""First entries that hide every GPU, as people do on purpose."""

CUDA_GUIDE = "CUDA C++ Programming Guide, CUDA Environment Variables"


@rule(
    "ENV001",
    "visible-devices-invalid",
    Severity.ERROR,
    why="CUDA stops at the first entry it cannot use and drops all devices when one is repeated",
    fix=Fix("name each device once, by its index or UUID", "unset CUDA_VISIBLE_DEVICES"),
    confirm="nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"; python -c 'import torch; print(torch.cuda.device_count())'",
    source=CUDA_GUIDE,
)
def visible_devices_invalid(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA_VISIBLE_DEVICES names a device that is not there, names one twice, is no list, or hides every GPU.

    Silent where the policy or a CPU build of torch says that no GPU is meant, where the boards are not known (an index
    is then taken as it is), on ROCm, for indices with MIG on (they count instances), for abbreviated UUIDs that fit one
    board, and for a trailing comma or -1, which end the list without harm.
    """
    text = machine.environment.variables.get("CUDA_VISIBLE_DEVICES") if machine.environment else None
    if text is None or without_gpus(machine):
        return
    boards = machine.gpus.boards if machine.gpus else ()
    problem = _visible_devices_problem([part.strip() for part in text.split(",")], boards)
    if problem is None:
        return
    hides_all, wanted = problem
    told = machine.expected.gpus or machine.expected.device
    deliberate = text.split(",")[0].strip() in HIDING and (
        not boards or (machine.torch is not None and machine.torch.build == "cpu")
    )
    if deliberate and not told:
        return  # nothing to hide is known, or torch's build says that hiding is meant
    yield Evidence(
        where="CUDA_VISIBLE_DEVICES",
        what="hides every GPU" if hides_all else "value",
        seen=f'"{text}"',
        wanted=wanted,
    )


def _visible_devices_problem(parts: list[str], boards: tuple[Gpu, ...]) -> tuple[bool, str] | None:
    """Whether it hides all GPUs, and what would be right; None where nothing is wrong."""
    while len(parts) > 1 and parts[-1] in {"", "-1"}:
        parts = parts[:-1]
    if parts[0] in HIDING:
        hint = ": Slurm gave this job no GPU (--gres=gpu:N)" if parts[0] == "NoDevFiles" else ""
        return True, f"unset, or a list of devices{hint}"
    if (repeated := next((part for part in parts if parts.count(part) > 1), None)) is not None:
        return True, f"{repeated} once"
    mig = any(board.mig_mode for board in boards)
    for at, part in enumerate(parts):
        if part.isascii() and part.isdigit():
            if boards and not mig and int(part) >= len(boards):
                return at == 0, f"0 to {len(boards) - 1}"
        elif part.startswith(("GPU-", "MIG-")):
            if (count := _fitting(part, boards)) is not None and count != 1:
                return at == 0, f"the UUID of one board (this one fits {count}): nvidia-smi -L"
        else:
            return at == 0, "indices or UUIDs with commas between, such as 0,1"
    return None


def _fitting(identifier: str, boards: tuple[Gpu, ...]) -> int | None:
    """Boards or instances whose UUID begins so; None where their UUIDs are not known, or replaced by stand-ins."""
    kind = identifier[:4]
    if kind == "MIG-":
        known = [item.uuid for board in boards for item in board.mig_instances]
    else:
        known = [board.uuid for board in boards]
    form = re.compile(rf"{kind}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", re.IGNORECASE)
    if not known or not all(uuid and form.fullmatch(uuid) for uuid in known):
        return None
    return sum(uuid.lower().startswith(identifier.lower()) for uuid in known if uuid)


@rule(
    "ENV002",
    "launch-blocking",
    Severity.WARNING,
    why="the host waits for each kernel before it launches the next one, so the GPU idles in between",
    fix=Fix("unset it once the failing kernel is found", "unset CUDA_LAUNCH_BLOCKING"),
    confirm="echo $CUDA_LAUNCH_BLOCKING",
    source=CUDA_GUIDE,
)
def launch_blocking(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA_LAUNCH_BLOCKING is set to a number other than 0.

    Silent on machines without a GPU to launch on. Words are no number: CUDA takes them as 0.
    """
    if machine.environment is None or without_gpus(machine):
        return
    if number(machine.environment.variables.get("CUDA_LAUNCH_BLOCKING")):
        value = machine.environment.variables["CUDA_LAUNCH_BLOCKING"]
        yield Evidence(where="CUDA_LAUNCH_BLOCKING", what="value", seen=value, wanted="unset or 0")


@rule(
    "ENV003",
    "alloc-conf-invalid",
    Severity.ERROR,
    why="torch refuses the whole setting when it first allocates on a GPU, and the job ends there",
    fix=Fix(
        "write option:value, with commas between options", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    ),
    confirm="python -c 'import torch; torch.zeros(1, device=\"cuda\")'",
    source="PyTorch documentation, CUDA semantics, Optimizing memory usage with PYTORCH_ALLOC_CONF",
)
def alloc_conf_invalid(machine: Snapshot) -> Iterator[Evidence]:
    """PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF cannot be parsed, or holds an option or a value torch refuses.

    Silent without a GPU, on ROCm, and for spaces and a trailing comma, which torch skips. An unknown option that
    resembles no known one may be of a newer torch: likely, not certain.
    """
    if machine.environment is None or without_gpus(machine):
        return
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        text = machine.environment.variables.get(name, "")
        for seen, wanted, certain in _allocator_problems(text, machine.torch.version if machine.torch else None):
            yield Evidence(
                where=name, what="option", seen=seen, wanted=wanted, confidence="certain" if certain else "likely"
            )


def _allocator_problems(text: str, torch: str | None) -> Iterator[tuple[str, str, bool]]:
    """Seen, wanted, and whether that is certain."""
    import difflib

    from gpudoctor.tables.allocator import OPTIONS, VALUES

    # Commas inside brackets belong to the value.
    for option in re.findall(r"(?:\[[^\]]*\]?|[^,\[])+", re.sub(r"\s", "", text)):
        key, colon, value = option.partition(":")
        if not colon or not value:
            yield option, "option:value", True
        elif key == "expandable_segments" and torch and re.match(r"(1|2\.0)\.", torch):
            yield option, f"torch 2.1 or newer (this is {torch})", True  # 2.0.1 says: Unrecognized option
        elif key not in OPTIONS:
            near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.8)
            yield key, near[0] if near else "an option that torch knows", bool(near)
        elif key in VALUES and not VALUES[key][0](value):
            yield option, VALUES[key][1], True


SWITCHED_ON = {"1", "true", "on", "yes"}


@rule(
    "ENV004",
    "debug-left-on",
    Severity.WARNING,
    why="settings for a search for errors cost speed in every step, or fill the disk with logs",
    fix=Fix("unset it once the error is found"),
    confirm="env | grep -E 'NCCL_DEBUG|TORCH_'",
    source="NVIDIA NCCL user guide, Environment Variables; PyTorch documentation, torch.distributed, Debugging",
)
def debug_left_on(machine: Snapshot) -> Iterator[Evidence]:
    """A variable of NCCL or torch holds a value meant for debugging, such as NCCL_DEBUG=TRACE.

    Silent for NCCL_DEBUG=WARN and INFO, which cost next to nothing and are what a report of an error needs.
    """
    environment = machine.environment
    if environment is None:
        return
    if environment.variables.get("TORCH_SHOW_CPP_STACKTRACES", "").lower() in SWITCHED_ON:
        yield _debugging(environment, "TORCH_SHOW_CPP_STACKTRACES", "resolves symbols at every exception")
    if not any(
        name.startswith(("NCCL_", "TORCH_", "PYTORCH_")) for name in (*environment.variables, *environment.nccl_config)
    ):
        return
    from gpudoctor.tables.nccl import table

    for row in table().variable:
        value = environment.get(row.name)
        if (
            row.debug
            and value is not None
            and (value.upper() in row.debug or (row.debug == ("1",) and value.lower() in SWITCHED_ON))
        ):
            yield _debugging(environment, row.name, row.effect or "is for debugging")


def _debugging(environment: Environment, name: str, effect: str) -> Evidence:
    return Evidence(where=name, what=effect, seen=f"{environment.get(name)}", wanted="unset")


@rule(
    "ENV005",
    "fastest-first-order",
    Severity.INFO,
    why="CUDA counts the fastest board as 0 and nvidia-smi the first on the bus, so an index may mean another board",
    fix=Fix("let CUDA count as nvidia-smi does", "export CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    confirm="nvidia-smi -L; python -c 'import torch; print(torch.cuda.get_device_name(0))'",
    source=CUDA_GUIDE,
)
def fastest_first_order(machine: Snapshot) -> Iterator[Evidence]:
    """Boards of different models, and CUDA_DEVICE_ORDER is not PCI_BUS_ID.

    Silent where all boards are of one model: both orders are then the same.
    """
    if machine.environment is None or machine.gpus is None:
        return
    names = {board.name for board in machine.gpus.boards}
    order = machine.environment.variables.get("CUDA_DEVICE_ORDER")
    if None not in names and len(names) > 1 and order != "PCI_BUS_ID":
        yield Evidence(
            where="CUDA_DEVICE_ORDER", what="value", seen=order or "unset (FASTEST_FIRST)", wanted="PCI_BUS_ID"
        )


RULES: tuple[Rule[Snapshot], ...] = (
    visible_devices_invalid,
    launch_blocking,
    alloc_conf_invalid,
    debug_left_on,
    fastest_first_order,
)
