"""Rules on CPUs."""

import re
from collections.abc import Iterator

from gpudoctor.facts.environment import Environment
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot

CPUS_A_GPU = 2  # one that launches kernels, one that loads batches
# In their own (active) mode these choose the frequency by load under the name of "powersave".
SELF_GOVERNING = {"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"}


@rule(
    "SYS004",
    "cpu-quota",
    Severity.WARNING,
    why="the process that launches kernels and its loader workers share these CPUs: the GPU waits for them",
    fix=Fix("give the job more CPUs: docker run --cpus, resources.limits.cpu, srun --cpus-per-task", safety="restarts"),
    confirm="nproc; cat /sys/fs/cgroup/cpu.max; grep Cpus_allowed_list /proc/self/status",
    source="sched_setaffinity(2); kernel documentation, cgroup v2, cpu.max; 2 CPUs a GPU is our bound",
)
def cpu_quota(machine: Snapshot) -> Iterator[Evidence]:
    """Control group or affinity leave fewer than 2 CPUs a GPU, or than the policy's loader workers of all ranks.

    Silent where the machine itself has no more, and where a rank of several has CPUs enough for itself: its launcher
    may have bound it to them.
    """
    cpu, gpus = machine.cpu, machine.gpu_count()
    if cpu is None or not gpus:
        return
    here = -(-gpus // _ranks_here(machine.environment))
    granted = (
        ("quota", cpu.quota, gpus),
        ("cpuset", _count(cpu.cpuset), gpus),
        ("affinity", _count(cpu.affinity), here),
    )
    known = [(name, float(cpus), served) for name, cpus, served in granted if cpus and cpus < (cpu.count or cpus + 1)]
    workers = machine.expected.workers or 0
    for wanted, reason, source in (
        (CPUS_A_GPU, "2 a GPU", None),
        (workers, f"{workers} loader workers a GPU", "the policy"),
    ):
        short = [(name, cpus, served) for name, cpus, served in known if cpus < wanted * served]
        for name, cpus, served in short[:1]:
            seen = f"{cpus:g} CPUs for {served} GPU{'s' if served > 1 else ''}"
            yield Evidence(what=name, seen=seen, wanted=f"{wanted * served} ({reason})", source=source)


def _count(cpus: tuple[int, ...] | None) -> int | None:
    return len(cpus) if cpus else None


def _ranks_here(environment: Environment | None) -> int:
    """Ranks that the launcher of this very process started on this node; 1 where none did."""
    variables = environment.variables if environment else {}
    for name in (
        "LOCAL_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_NTASKS_PER_NODE",
    ):
        if match := re.match(r"[1-9]\d*", variables.get(name, "")):  # Slurm writes `8(x2)`.
            return int(match.group())
    return 1


@rule(
    "SYS006",
    "powersave-governor",
    Severity.WARNING,
    why="the CPUs stay at their lowest frequency, so kernels are launched and batches made more slowly",
    fix=Fix("let them rise with the load", "sudo cpupower frequency-set -g performance", safety="needs root"),
    confirm="grep . /sys/devices/system/cpu/cpufreq/policy0/scaling_*",
    source="kernel documentation, CPU Performance Scaling, Generic Scaling Governors",
)
def powersave_governor(machine: Snapshot) -> Iterator[Evidence]:
    """The frequency governor of a machine with GPUs is `powersave`, which holds the lowest frequency.

    Silent with intel_pstate and amd-pstate-epp, whose `powersave` follows the load; where the driver is not known; in
    virtual machines, which have no governor; without GPUs (laptops).
    """
    cpu = machine.cpu
    if cpu is None or not machine.gpu_count() or not cpu.governors or not cpu.scaling_drivers:
        return
    if "powersave" in cpu.governors and not SELF_GOVERNING & set(cpu.scaling_drivers):
        seen = f"{', '.join(cpu.governors)} ({', '.join(cpu.scaling_drivers)})"
        yield Evidence(what="governor", seen=seen, wanted="performance or schedutil")


@rule(
    "SYS007",
    "numa-balancing",
    Severity.INFO,
    why="the kernel unmaps pages now and then to see who uses them; ranks bound to their GPU's node pay for nothing",
    fix=Fix("switch it off and compare", "echo 0 | sudo tee /proc/sys/kernel/numa_balancing", safety="needs root"),
    confirm="cat /proc/sys/kernel/numa_balancing",
    source="kernel documentation, sysctl/kernel, numa_balancing; ROCm documentation, Prerequisite system validation",
)
def numa_balancing(machine: Snapshot) -> Iterator[Evidence]:
    """Automatic NUMA balancing is on, on a machine with GPUs and more than one NUMA node.

    Silent on one node, where it does nothing.
    """
    cpu = machine.cpu
    if cpu is not None and cpu.numa_balancing and (cpu.numa_nodes or 0) > 1 and machine.gpu_count():
        yield Evidence(what="NUMA balancing", seen=f"on, {cpu.numa_nodes} nodes", wanted="off for bound ranks")


@rule(
    "SYS008",
    "omp-threads",
    Severity.WARNING,
    why="threads of different ranks take each other's CPUs: work on the host gets slower than with fewer",
    fix=Fix("divide the CPUs among the ranks"),
    confirm="echo $OMP_NUM_THREADS $LOCAL_WORLD_SIZE; nproc",
    source="PyTorch documentation, CPU threading and TorchScript inference, Tuning the number of threads",
)
def omp_threads(machine: Snapshot) -> Iterator[Evidence]:
    """OMP_NUM_THREADS × LOCAL_WORLD_SIZE is more than the CPUs the job may use.

    Silent unless both are set. The affinity of this process does not count: a launcher may have bound it to those of
    its own rank.
    """
    if machine.environment is None or machine.cpu is None or machine.cpu.granted is None:
        return
    threads, ranks = machine.environment.number("OMP_NUM_THREADS"), machine.environment.number("LOCAL_WORLD_SIZE")
    if not threads or not ranks or threads < 1 or threads * ranks <= machine.cpu.granted:
        return
    share = max(1, int(machine.cpu.granted) // ranks)
    yield Evidence(
        where="OMP_NUM_THREADS",
        what="threads of all ranks",
        seen=f"{threads} × {ranks} ranks = {threads * ranks}",
        wanted=f"at most {machine.cpu.granted:g}, the CPUs there are",
        fix=(Fix("divide the CPUs among the ranks", f"export OMP_NUM_THREADS={share}"),),
    )


RULES: tuple[Rule[Snapshot], ...] = (cpu_quota, powersave_governor, numa_balancing, omp_threads)
