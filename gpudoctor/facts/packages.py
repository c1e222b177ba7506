"""Packages around torch: versions, what they require, whether their compiled parts load."""

from gpudoctor.facts.base import Fact, Subject


class Package(Fact, frozen=True, kw_only=True):
    """One installed distribution."""

    name: str
    """As PyPI normalises it, such as `flash-attn`."""
    version: str | None = None
    requires_torch: str | None = None
    """Requirement on torch from its own metadata, such as `==2.9.1`; empty where it takes any torch; None where its
    metadata name none or were not seen."""
    requires_python: str | None = None
    compiled: bool = False
    """It holds compiled code for torch."""
    imported: bool | None = None
    """Its compiled code loads beside this torch; None where that was not tried."""
    import_error: str | None = None
    """The loader's words, or the last line of the traceback."""
    signal: int | None = None
    """Number of the signal the trial died by."""
    local_cuda: str | None = None
    """CUDA tag of its build, such as `cu128` or `cpu`; None where its version does not tell."""


class Packages(Subject, frozen=True, kw_only=True):
    """Empty where none of the known packages is installed."""

    installed: tuple[Package, ...] = ()
    compilers: tuple[str, ...] | None = None
    """C compilers on PATH (cc, gcc, clang) or in CC; empty where there is none, which torch.compile needs."""
    torch_requires: dict[str, str] | None = None
    """What torch's own metadata require of packages compiled for it: `{"triton": "==3.6.0"}`; None where not seen."""

    def get(self, name: str) -> Package | None:
        """The package of that name; None where it is not installed."""
        return next((package for package in self.installed if package.name == name), None)
