"""Read limits."""

from gpudoctor.facts.limits import Limits
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Limits:
    """Not written yet."""
    raise NotRead("not written yet")
