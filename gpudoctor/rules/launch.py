"""What rules on launch variables share: for which machine a job is meant, how C reads a number."""

from __future__ import annotations

import re

from gpudoctor.snapshot import Snapshot


def without_gpus(machine: Snapshot) -> bool:
    """Jobs launched from here are known to use no NVIDIA GPU.

    A machine without GPUs does not say so: launch variables set on a login node travel with the job.
    """
    if machine.expected.device not in {None, "cuda"}:
        return True
    if machine.host is not None and machine.host.system == "Darwin":
        return True
    return machine.torch is not None and machine.torch.build in {"rocm", "xpu", "mps"}


def one_gpu_at_most(machine: Snapshot) -> bool:
    """Known to have no two GPUs that could talk to each other."""
    boards = len(machine.gpus.boards) if machine.gpus is not None else None
    return without_gpus(machine) or (boards is not None and boards < 2)


def nodes(machine: Snapshot) -> int | None:
    """Nodes of the job: as the policy says, else the launcher; None where neither does."""
    if machine.expected.nodes is not None:
        return machine.expected.nodes
    return machine.environment.nodes if machine.environment is not None else None


def several_nodes(machine: Snapshot) -> bool:
    """The job is known to span nodes."""
    return (nodes(machine) or 1) > 1


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1 and `localhost`."""
    return address.startswith("127.") or address in {"::1", "localhost"}


def number(value: str | None) -> int:
    """As C's strtol takes it: leading digits (0x and 0 as in C); 0 where there are none."""
    match = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)", value or "")
    if match is None:
        return 0
    digits = match[2]
    if digits[:2].lower() == "0x":
        size = int(digits, 16)
    elif digits[0] == "0":
        size = int(re.match(r"[0-7]+", digits)[0], 8)  # type: ignore[index]
    else:
        size = int(digits)
    return -size if match[1] == "-" else size
