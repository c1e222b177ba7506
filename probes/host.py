"""Read host."""

from gpudoctor.facts.host import Host
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Host:
    """Not written yet."""
    raise NotRead("not written yet")
