"""Limits of this process: rlimits, and those of its control group."""

from gpudoctor.facts.base import Subject


class Limits(Subject, frozen=True, kw_only=True):
    """An rlimit without limit is given as None in `*_limit` and True in `*_unlimited`."""

    open_files: int | None = None
    """Soft RLIMIT_NOFILE."""
    open_files_hard: int | None = None
    locked_memory_bytes: int | None = None
    """Soft RLIMIT_MEMLOCK; None where unlimited or not read."""
    locked_memory_unlimited: bool | None = None
    processes: int | None = None
    """Soft RLIMIT_NPROC or the control group's pids.max, the lower; None where unlimited."""
    processes_in_use: int | None = None
    """Of the control group, where pids.current is readable."""
    stack_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """Of the control group (v1 or v2); None where there is none."""
    memory_in_use_bytes: int | None = None
    """Of the control group, page cache excluded."""
    memory_total_bytes: int | None = None
    """Of the machine."""
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    oom_kills: int | None = None
    """Of the control group, over its life."""
    cgroup_version: int | None = None
