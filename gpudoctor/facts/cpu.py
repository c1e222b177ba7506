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
    """CPUs this process may run on."""
    quota: float | None = None
    """CPUs' worth of time its control group grants; None where unlimited."""
    governors: tuple[str, ...] | None = None
    """Frequency governors in use, each once; empty where the kernel has none (virtual machines)."""
    numa_nodes: int | None = None
    numa_balancing: bool | None = None

    @property
    def usable(self) -> float | None:
        """CPUs this process can keep busy: the lowest of count, affinity and quota; None where none is known."""
        known = [float(value) for value in (self.count, len(self.affinity or ()) or None, self.quota) if value]
        return min(known, default=None)
