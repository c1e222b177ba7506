"""Read packages."""

from gpudoctor.facts.packages import Packages
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Packages:
    """Not written yet."""
    raise NotRead("not written yet")
