"""What NVML saw of the GPUs while a job ran, from outside the job."""

from __future__ import annotations

from gpudoctor.facts.base import Fact


class Holder(Fact, frozen=True, kw_only=True):
    """Memory that one process of the job held on one GPU."""

    pid: int
    rank: int | None = None
    """None for a process that is no rank (a loader worker, the launcher)."""
    peak_bytes: int | None = None
    """0 is a peer context, harmless; None where the driver does not say."""


class WatchedGpu(Fact, frozen=True, kw_only=True):
    """One board, sampled a few times a second. All series have the length of `Watch.at_s`."""

    index: int
    """NVML's, which follows the PCI bus."""
    uuid: str | None = None
    name: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: tuple[int | None, ...] = ()
    """Without the part the driver keeps for itself, where NVML tells it apart."""
    utilization_ratio: tuple[float | None, ...] = ()
    """Share of NVML's last sample period in which a kernel ran, 0 to 1."""
    clock_sm_mhz: tuple[int | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    holders: tuple[Holder, ...] = ()
    """Processes of the job that held memory on it."""

    @property
    def peak_bytes(self) -> int | None:
        """The most in use at any sample; None where none told."""
        return max((used for used in self.memory_used_bytes if used is not None), default=None)


class Watch(Fact, frozen=True, kw_only=True):
    """Every board the driver lists, whether the job used it or not."""

    at_s: tuple[float, ...] = ()
    """Seconds since the job was started."""
    gpus: tuple[WatchedGpu, ...] = ()
