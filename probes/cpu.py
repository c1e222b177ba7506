"""Read cpu."""

from gpudoctor.facts.cpu import Cpu
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Cpu:
    """Not written yet."""
    raise NotRead("not written yet")
