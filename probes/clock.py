"""Read clock."""

from gpudoctor.facts.clock import Clock
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Clock:
    """Not written yet."""
    raise NotRead("not written yet")
