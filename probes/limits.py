"""Read the limits of this process: rlimits and control group."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.facts.limits import Limits
from gpudoctor.probes.cgroup import ControlGroup, control_group
from gpudoctor.probes.system import NotRead, System

# Version 1 says "no limit" by the largest count of whole pages: 2**63 less one page of 4, 16 or 64 KiB.
V1_UNLIMITED = 2**62
CAP_IPC_LOCK, CAP_SYS_RESOURCE = 14, 24
WHOLE_MACHINE = ["0", "0", "4294967295"]


def read(system: System) -> Limits:
    """From /proc, or by system calls where there is none (macOS).

    Raises NotRead where neither can be asked.
    """
    table = system.text_or_none("/proc/self/limits")
    if table is None:
        if not system.live:
            raise NotRead("no /proc")
        return from_system_calls()
    facts = _rlimits(table) | _machine(system)
    unread: dict[str, str] = {}
    capabilities = _capabilities(system)
    facts["locked_memory_exempt"] = None if capabilities is None else bool(capabilities >> CAP_IPC_LOCK & 1)
    if capabilities is not None and capabilities >> CAP_SYS_RESOURCE & 1:
        facts["processes"] = None  # RLIMIT_NPROC does not bind root.
    try:
        facts |= _memory(control_group(system, "memory"))
    except NotRead as error:
        unread["memory_limit"] = str(error)
    try:
        facts |= _pids(control_group(system, "pids"), facts["processes"])
    except NotRead as error:
        unread["processes"] = str(error)
    return Limits(**facts, unread=unread)


def _rlimits(table: str) -> dict[str, Any]:
    """Source: proc_pid_limits(5). Columns: name, soft, hard, unit."""

    def limit(name: str, column: int = 1) -> int | None:
        match = re.search(rf"^{name} +(\S+) +(\S+)", table, re.MULTILINE)
        return int(match.group(column)) if match and match.group(column).isdecimal() else None

    locked = re.search(r"^Max locked memory +(\S+)", table, re.MULTILINE)
    return {
        "open_files": limit("Max open files"),
        "open_files_hard": limit("Max open files", 2),
        "locked_memory_bytes": limit("Max locked memory"),
        "locked_memory_unlimited": locked.group(1) == "unlimited" if locked else None,
        "processes": limit("Max processes"),
        "stack_bytes": limit("Max stack size"),
    }


def _capabilities(system: System) -> int | None:
    """Effective ones; None in a user namespace, where they do not hold for the machine's own limits."""
    status = re.search(r"^CapEff:\s*([0-9a-f]+)", system.text_or_none("/proc/self/status") or "", re.MULTILINE)
    users = (system.text_or_none("/proc/self/uid_map") or "").split()
    return int(status.group(1), 16) if status and users == WHOLE_MACHINE else None


def _memory(group: ControlGroup) -> dict[str, Any]:
    def limit(folder: str) -> int | None:
        if group.version == 2:
            return group.number("memory.max", folder)
        # memory.stat also knows of groups above those that are mounted here.
        values = (
            group.number("memory.limit_in_bytes", folder),
            group.table("memory.stat", folder).get("hierarchical_memory_limit"),
        )
        return min((value for value in values if value is not None and value < V1_UNLIMITED), default=None)

    lowest = group.lowest(limit)
    folder = lowest.folder if lowest else group.folders[0]
    current = group.number("memory.current" if group.version == 2 else "memory.usage_in_bytes", folder)
    return {
        "cgroup_version": group.version,
        "memory_limit_bytes": int(lowest.value) if lowest else None,
        "memory_in_use_bytes": None if current is None else max(0, current - _given_back(group, folder)),
        "oom_kills": _oom_kills(group, folder),
    }


def _given_back(group: ControlGroup, folder: str) -> int:
    """Page cache and, where told, caches of the kernel; files in tmpfs are not among them, since they cannot go."""
    stat = group.table("memory.stat", folder)
    if group.version == 1:
        return stat.get("total_inactive_file", 0) + stat.get("total_active_file", 0)
    return stat.get("inactive_file", 0) + stat.get("active_file", 0) + stat.get("slab_reclaimable", 0)


def _oom_kills(group: ControlGroup, folder: str) -> int | None:
    """Version 1 counts in the killed process's own group alone."""
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    counts = (group.table(name, one).get("oom_kill") for one in {folder, group.folders[0]})
    return max((count for count in counts if count is not None), default=None)


def _pids(group: ControlGroup, of_user: int | None) -> dict[str, Any]:
    """Nothing where the user's own limit is the lower."""
    lowest = group.lowest(lambda folder: group.number("pids.max", folder))
    if lowest is None or (of_user is not None and of_user <= lowest.value):
        return {}
    return {"processes": int(lowest.value), "processes_in_use": group.number("pids.current", lowest.folder)}


def _machine(system: System) -> dict[str, Any]:
    text = system.text_or_none("/proc/meminfo") or ""
    kib = {key: int(value) for key, value in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}

    def in_bytes(key: str) -> int | None:
        return kib[key] * 1024 if key in kib else None

    return {
        "memory_total_bytes": in_bytes("MemTotal"),
        "memory_available_bytes": in_bytes("MemAvailable"),
        "swap_total_bytes": in_bytes("SwapTotal"),
    }


def from_system_calls() -> Limits:
    """Of this process and machine, as far as Python and psutil tell."""
    import resource

    import psutil

    def limit(kind: int, hard: bool = False) -> int | None:
        value = resource.getrlimit(kind)[hard]
        return None if value == resource.RLIM_INFINITY else value

    locked = limit(resource.RLIMIT_MEMLOCK)
    memory = psutil.virtual_memory()
    return Limits(
        open_files=limit(resource.RLIMIT_NOFILE),
        open_files_hard=limit(resource.RLIMIT_NOFILE, hard=True),
        locked_memory_bytes=locked,
        locked_memory_unlimited=locked is None,
        processes=limit(resource.RLIMIT_NPROC),
        stack_bytes=limit(resource.RLIMIT_STACK),
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        swap_total_bytes=psutil.swap_memory().total,
    )
