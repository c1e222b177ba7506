"""Limits of this process: rlimits, and those of its control group."""

from gpudoctor.facts.base import Subject


class Limits(Subject, frozen=True, kw_only=True):
    """A limit that is not set is None; of locked memory `locked_memory_unlimited` then tells it from "not read"."""

    open_files: int | None = None
    """Soft RLIMIT_NOFILE."""
    open_files_hard: int | None = None
    locked_memory_bytes: int | None = None
    """Soft RLIMIT_MEMLOCK; None where unlimited or not read."""
    locked_memory_unlimited: bool | None = None
    locked_memory_exempt: bool | None = None
    """CAP_IPC_LOCK over the whole machine, for which the limit does not count (root outside containers)."""
    processes: int | None = None
    """Soft RLIMIT_NPROC or the control group's pids.max, the lower; None where unlimited. Threads count."""
    processes_in_use: int | None = None
    """Of the control group that sets `processes`; None where an rlimit does."""
    stack_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """Of the control group (v1 or v2), the lowest along its path; None where there is none."""
    memory_in_use_bytes: int | None = None
    """Of the group that sets the limit (else the process's own), without page cache and other memory the kernel
    gives back on demand."""
    memory_total_bytes: int | None = None
    """Of the machine."""
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    oom_kills: int | None = None
    """Of the group that sets the limit (else the process's own), over its life."""
    cgroup_version: int | None = None
    """1 or 2: of the memory controller."""
