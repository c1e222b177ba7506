"""Read torch_runtime."""

from gpudoctor.facts.torch import TorchRuntime
from gpudoctor.probes.system import NotRead, System


def read(system: System) -> TorchRuntime:
    """Not written yet."""
    raise NotRead("not written yet")
