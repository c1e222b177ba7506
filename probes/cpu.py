"""Read the CPUs and how many of them this process may use."""

from __future__ import annotations

import re

from gpudoctor.facts.cpu import Cpu
from gpudoctor.probes.cgroup import ControlGroup, control_group
from gpudoctor.probes.system import NotRead, System

CPUS = "/sys/devices/system/cpu"


def read(system: System) -> Cpu:
    """From /proc and /sys, or with psutil where there is neither (macOS).

    Raises NotRead where nothing can be asked.
    """
    info = system.text_or_none("/proc/cpuinfo")
    if info is None:
        if not system.live:
            raise NotRead("no /proc")
        return from_psutil(system)
    unread: dict[str, str] = {}
    quota: float | None = None
    cpuset: tuple[int, ...] | None = None
    try:
        quota = _quota(control_group(system, "cpu"))
    except NotRead as error:
        unread["quota"] = str(error)
    online = cpu_list(system.text_or_none(f"{CPUS}/online"))
    try:
        cpuset = _online(_cpuset(control_group(system, "cpuset")), online)
    except NotRead as error:
        unread["cpuset"] = str(error)
    status = re.search(r"^Cpus_allowed_list:\s*(\S+)", system.text_or_none("/proc/self/status") or "", re.MULTILINE)
    balancing = system.text_or_none("/proc/sys/kernel/numa_balancing")
    return Cpu(
        model=next(iter(re.findall(r"^model name\s*: (.+)", info, re.MULTILINE)), None),
        count=len(online) if online else len(re.findall(r"^processor\s*:", info, re.MULTILINE)) or None,
        cores=_cores(system),
        affinity=_online(cpu_list(status.group(1)) if status else None, online),
        cpuset=cpuset,
        quota=quota,
        governors=_policies(system, "scaling_governor"),
        scaling_drivers=_policies(system, "scaling_driver"),
        numa_nodes=_numa_nodes(system),
        # Bit 0 balances; bit 1 moves pages to slower memory and back, which is another matter.
        numa_balancing=bool(int(balancing) & 1) if balancing and balancing.isdecimal() else None,
        unread=unread,
    )


def _quota(group: ControlGroup) -> float | None:
    """CPUs' worth of time; None where no group along the path limits it."""

    def granted(folder: str) -> float | None:
        if group.version == 2:
            quota, _, period = (group.text("cpu.max", folder) or "").partition(" ")
        else:
            # -1 where there is no quota.
            quota, period = (group.text(f"cpu.cfs_{name}_us", folder) or "" for name in ("quota", "period"))
        return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None

    lowest = group.lowest(granted)
    return lowest.value if lowest else None


def _cpuset(group: ControlGroup) -> tuple[int, ...] | None:
    """The nearest group that tells; the effective set already holds what the groups above allow."""
    for folder in group.folders:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if cpus := cpu_list(group.text(name, folder)):
                return cpus
    return None


def _online(cpus: tuple[int, ...] | None, online: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """WHY: a mask may name CPUs that the board could take and does not have."""
    if cpus is None or not online:
        return cpus
    return tuple(cpu for cpu in cpus if cpu in set(online)) or None


def cpu_list(text: str | None) -> tuple[int, ...] | None:
    """`0-3,8` as numbers; None where it is no such list."""
    if text is None or not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return None
    spans = (part.partition("-") for part in text.split(","))
    return tuple(cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1))


def _cores(system: System) -> int | None:
    """Distinct sets of CPUs that share a core."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if siblings := {path.read_text() for path in system.glob(f"{CPUS}/cpu[0-9]*/topology/{name}")}:
            return len(siblings)
    return None


def _policies(system: System, name: str) -> tuple[str, ...] | None:
    """Each value once; empty where the kernel scales no frequency."""
    if not system.path(CPUS).is_dir():
        return None
    try:
        return tuple(sorted({path.read_text().strip() for path in system.glob(f"{CPUS}/cpufreq/policy*/{name}")}))
    except OSError:
        return None


def _numa_nodes(system: System) -> int | None:
    nodes = cpu_list(system.text_or_none("/sys/devices/system/node/has_cpu"))
    return len(nodes) if nodes else None


def from_psutil(system: System) -> Cpu:
    """Counts and, on macOS, the model."""
    import psutil

    try:
        model = system.run(["sysctl", "-n", "machdep.cpu.brand_string"], timeout_s=2.0).strip() or None
    except NotRead:
        model = None
    return Cpu(model=model, count=psutil.cpu_count(), cores=psutil.cpu_count(logical=False))
