"""Read exposure."""

from gpudoctor.facts.exposure import Exposure
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Exposure:
    """Not written yet."""
    raise NotRead("not written yet")
