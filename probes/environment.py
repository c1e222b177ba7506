"""Read environment."""

from gpudoctor.facts.environment import Environment
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Environment:
    """Not written yet."""
    raise NotRead("not written yet")
