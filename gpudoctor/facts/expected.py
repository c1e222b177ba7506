"""What the user's policy expects of a machine: known before anything is read."""

from gpudoctor.facts.base import Fact


class Expected(Fact, frozen=True, kw_only=True):
    """Every field None: nothing is expected, and the rules judge by the machine alone."""

    device: str | None = None
    """`cuda`, `cpu`, `rocm` or `mps`: what jobs here train on."""
    gpus: int | None = None
    gpu: str | None = None
    """Part of the board's name, such as `H100`."""
    nodes: int | None = None
    """Nodes of the job; more than one makes network rules strict."""
    precision: str | None = None
    """`bf16`, `fp16`, `tf32` or `fp32`."""
    shm_bytes: int | None = None
    workers: int | None = None
    """Loader workers a rank."""
