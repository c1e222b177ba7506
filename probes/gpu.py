"""Read gpu."""

from gpudoctor.facts.gpu import Gpus
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> Gpus:
    """Not written yet."""
    raise NotRead("not written yet")
