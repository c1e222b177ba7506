"""Read disks."""

from gpudoctor.facts.disks import Disks
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Disks:
    """Not written yet."""
    raise NotRead("not written yet")
