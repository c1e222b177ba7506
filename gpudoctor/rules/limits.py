"""Rules on the limits of processes and control groups."""

from collections.abc import Iterator

from gpudoctor.facts.limits import Limits
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.sizes import GIB, size
from gpudoctor.snapshot import Snapshot

OPEN_FILES = 4096
PROCESSES, PROCESSES_A_GPU = 1024, 256
NEARLY_USED = 0.9
MEMORY_A_GPU = GIB


def _on_macos(machine: Snapshot) -> bool:
    return machine.host is not None and machine.host.system == "Darwin"


def _gpus(machine: Snapshot) -> int:
    return machine.gpu_count() or 0


def _raised(machine: Snapshot, docker: str, limits_conf: str, command: str | None = None) -> tuple[Fix, ...]:
    """By the shell where it may, else where the limit is set: by the engine, or by the system's own files."""
    if command is not None:
        return (Fix("raise it in the shell (or script) that starts the job", command),)
    if machine.container is not None and machine.container.kind is not None:
        return (
            Fix(
                f"start the container with {docker}; in Kubernetes it is the container runtime's own", safety="restarts"
            ),
        )
    text = f'add "{limits_conf}" to /etc/security/limits.conf and log in again (for a service: Limit… in its unit)'
    return (Fix(text, safety="needs root"),)


@rule(
    "SYS001",
    "few-open-files",
    Severity.WARNING,
    why="torch keeps a descriptor for each tensor a loader worker hands over: too many open files ends the epoch",
    fix=Fix("raise it in the shell that starts the job", "ulimit -n 65536"),
    confirm="ulimit -n",
    source="PyTorch documentation, torch.multiprocessing, Sharing strategies; 4096 is our bound",
)
def few_open_files(machine: Snapshot) -> Iterator[Evidence]:
    """The process may open fewer than 4096 files (soft limit).

    Silent on macOS, where torch shares tensors by file name and keeps no descriptor.
    """
    limits = machine.limits
    if limits is None or limits.open_files is None or limits.open_files >= OPEN_FILES or _on_macos(machine):
        return
    hard = limits.open_files_hard
    command = None if hard is not None and hard < OPEN_FILES else f"ulimit -n {min(hard or 65536, 65536)}"
    yield Evidence(
        where="RLIMIT_NOFILE",
        what="open files",
        seen=f"{limits.open_files}" + (f" (at most {hard})" if hard is not None else ""),
        wanted=f"{OPEN_FILES} or more",
        fix=_raised(machine, "--ulimit nofile=65536:65536", "* - nofile 65536", command),
    )


@rule(
    "SYS002",
    "memlock-limited",
    Severity.INFO,
    why="RDMA registers its buffers as locked memory; where the limit is low, NCCL cannot allocate them",
    fix=Fix(
        'start the container with --ulimit memlock=-1, or add "* - memlock unlimited" to /etc/security/limits.conf'
    ),
    confirm="ulimit -l",
    source="NCCL user guide, Troubleshooting; ibv_reg_mr(3)",
)
def memlock_limited(machine: Snapshot) -> Iterator[Evidence]:
    """Locked memory is limited to less than half of the machine's: a warning with RDMA devices, else an info.

    Silent where the process may pass the limit (CAP_IPC_LOCK), and without GPUs.
    """
    limits = machine.limits
    if limits is None or limits.locked_memory_bytes is None or limits.locked_memory_exempt or not _gpus(machine):
        return
    if limits.memory_total_bytes is not None and limits.locked_memory_bytes >= limits.memory_total_bytes // 2:
        return
    yield Evidence(
        where="RLIMIT_MEMLOCK",
        what="locked memory",
        seen=size(limits.locked_memory_bytes),
        wanted="unlimited",
        severity=Severity.WARNING if machine.network and machine.network.rdma_ports else Severity.INFO,
        fix=_raised(machine, "--ulimit memlock=-1", "* - memlock unlimited"),
    )


@rule(
    "SYS003",
    "few-processes",
    Severity.WARNING,
    why="ranks, loader workers and the threads of each count (OpenMP, NCCL, CUDA): the next fork or thread fails",
    fix=Fix("raise the limit on processes where the job is started"),
    confirm="ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
    source="getrlimit(2), RLIMIT_NPROC; kernel documentation, cgroup v2, pids; the bounds are ours",
)
def few_processes(machine: Snapshot) -> Iterator[Evidence]:
    """The user or the control group may have fewer than 1024 processes and threads (or 256 a GPU), or has 90 % of them.

    Silent on macOS, where the limit counts no threads, and for root, whom the user's limit does not bind.
    """
    limits = machine.limits
    if limits is None or limits.processes is None or _on_macos(machine):
        return
    wanted, in_use = max(PROCESSES, PROCESSES_A_GPU * _gpus(machine)), limits.processes_in_use
    if limits.processes < wanted:
        seen, goal = f"{limits.processes} at most", f"{wanted} or more"
    elif in_use is not None and in_use >= NEARLY_USED * limits.processes:
        seen, goal = f"{in_use} of {limits.processes} in use", "below 90 %"
    else:
        return
    yield Evidence(
        what="processes and threads",
        seen=seen,
        wanted=goal,
        fix=_raised(machine, "--pids-limit=-1", "* - nproc 65536"),
    )


@rule(
    "SYS005",
    "memory-limit",
    Severity.WARNING,
    why="the kernel kills a rank or a loader worker of a group that reaches its limit, and /dev/shm counts towards it",
    fix=Fix("give the job more memory, or use fewer loader workers and less prefetching"),
    confirm="cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current /sys/fs/cgroup/memory.events",
    source="kernel documentation, cgroup v2, memory; the bounds are ours",
)
def memory_limit(machine: Snapshot) -> Iterator[Evidence]:
    """The memory limit of the control group has killed processes, is 90 % in use (page cache aside), or is below 1 GiB
    a GPU.

    A limit below the GPUs' memory is common and mostly fine: silent. Silent too where the limit is the whole machine.
    """
    limits = machine.limits
    if limits is None or limits.memory_limit_bytes is None:
        return
    if limits.memory_total_bytes is not None and limits.memory_limit_bytes >= limits.memory_total_bytes:
        return
    yield from _in_danger(limits, _gpus(machine))


def _in_danger(limits: Limits, gpus: int) -> Iterator[Evidence]:
    limit, in_use = limits.memory_limit_bytes or 0, limits.memory_in_use_bytes
    if limits.oom_kills:
        kills = f"{limits.oom_kills} under a limit of {size(limit)}"
        # They may be old: the count is over the group's life.
        yield Evidence(what="processes killed for memory", seen=kills, wanted="none", confidence="likely")
    if in_use is not None and in_use >= NEARLY_USED * limit:
        yield Evidence(what="memory in use", seen=f"{size(in_use)} of {size(limit)}", wanted="below 90 %")
    if limit < gpus * MEMORY_A_GPU:
        # `import torch` alone takes 0.2 GiB (CPU build, measured), a CUDA context and pinned batches come on top.
        yield Evidence(what="limit", seen=size(limit), wanted=f"1 GiB a GPU ({gpus}) at the very least")


RULES: tuple[Rule[Snapshot], ...] = (few_open_files, memlock_limited, few_processes, memory_limit)
