"""CPUs: how many there are, how many this process may use, how they run."""

from gpudoctor.facts.base import Subject


class Cpu(Subject, frozen=True, kw_only=True):
    """Counts are of logical CPUs."""

    model: str | None = None
    count: int | None = None
    """Online in the machine."""
    cores: int | None = None
    """Physical cores."""
    affinity: tuple[int, ...] | None = None
    """CPUs this process may run on; a launcher may have bound it to those of its own rank."""
    cpuset: tuple[int, ...] | None = None
    """CPUs its control group may run on, whatever this process itself was bound to."""
    quota: float | None = None
    """CPUs' worth of time its control group grants; None where unlimited."""
    governors: tuple[str, ...] | None = None
    """Frequency governors in use, each once; empty where the kernel has none (virtual machines)."""
    scaling_drivers: tuple[str, ...] | None = None
    """Frequency drivers in use, each once, such as `intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq`."""
    numa_nodes: int | None = None
    """Nodes with CPUs: GPU memory can be a node too."""
    numa_balancing: bool | None = None

    @property
    def usable(self) -> float | None:
        """CPUs this process can keep busy: the lowest of count, affinity and quota; None where none is known."""
        return _lowest(self.count, self.affinity, self.quota)

    @property
    def granted(self) -> float | None:
        """CPUs for all processes of the job together: the lowest of count, cpuset and quota; None where none is
        known."""
        return _lowest(self.count, self.cpuset, self.quota)


def _lowest(count: int | None, cpus: tuple[int, ...] | None, quota: float | None) -> float | None:
    return min((float(value) for value in (count, len(cpus or ()) or None, quota) if value), default=None)
