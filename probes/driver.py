"""Read driver."""

from gpudoctor.facts.driver import Driver
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Driver:
    """Not written yet."""
    raise NotRead("not written yet")
