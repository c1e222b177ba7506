"""Read kernel_log."""

from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> KernelLog:
    """Not written yet."""
    raise NotRead("not written yet")
