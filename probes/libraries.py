"""Read libraries."""

from gpudoctor.facts.libraries import Libraries
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Libraries:
    """Not written yet."""
    raise NotRead("not written yet")
