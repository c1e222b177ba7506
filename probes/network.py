"""Read network."""

from gpudoctor.facts.network import Network
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Network:
    """Not written yet."""
    raise NotRead("not written yet")
