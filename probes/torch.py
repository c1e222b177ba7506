"""Read torch."""

from gpudoctor.facts.torch import TorchBuild
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> TorchBuild:
    """Not written yet."""
    raise NotRead("not written yet")
