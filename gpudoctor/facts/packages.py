"""Packages around torch: versions, what they require, whether their compiled parts load."""

from gpudoctor.facts.base import Fact, Subject


class Package(Fact, frozen=True, kw_only=True):
    """One installed distribution."""

    name: str
    """As PyPI normalises it, such as `flash-attn`."""
    version: str | None = None
    requires_torch: str | None = None
    """Requirement on torch from its own metadata, such as `==2.9.1`; None where it has none."""
    requires_python: str | None = None
    compiled: bool = False
    """It holds compiled code that was tried by import."""
    imported: bool | None = None
    """None where the import was not tried."""
    import_error: str | None = None
    """Last line of the traceback."""
    signal: int | None = None
    local_cuda: str | None = None
    """CUDA tag in its version, such as `cu128`."""


class Packages(Subject, frozen=True, kw_only=True):
    """Empty where none of the known packages is installed."""

    installed: tuple[Package, ...] = ()
    compilers: tuple[str, ...] | None = None
    """C compilers on PATH (cc, gcc, clang) or in CC; empty where there is none, which torch.compile needs."""
