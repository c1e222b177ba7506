"""Read topology."""

from gpudoctor.facts.topology import Topology
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Topology:
    """Not written yet."""
    raise NotRead("not written yet")
