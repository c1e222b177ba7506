"""Releases of torch: Python, CUDA and libraries of the wheels, and the cards their code was built for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release, as pip installs it on Linux x86_64."""

    version: str
    python: tuple[str, ...]
    """Tags of its wheels, such as `cp313t`."""
    cuda: str
    """CUDA of the wheel on PyPI, `major.minor`."""
    variants: tuple[str, ...] | None = None
    """CUDA tags on PyTorch's own index, such as `cu128`."""
    cudnn: str | None = None
    """Exact versions that the wheel on PyPI requires; None where not known or where it takes a range."""
    nccl: str | None = None
    cublas: str | None = None
    triton: str | None = None
    torchvision: str | None = None
    """The release made for it."""
    torchaudio: str | None = None
    source: str


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU code in the wheels of one minor release and one CUDA."""

    torch: str
    """`major.minor`."""
    cuda: str
    machine: str
    """`x86_64` or `aarch64`."""
    arch: tuple[str, ...]
    """Compute capabilities with binary code."""
    ptx: str | None = None
    """Capability of the PTX in it, `none` where it has none, None where not known."""
    source: str

    @property
    def arch_list(self) -> tuple[str, ...]:
        """As torch.cuda.get_arch_list() gives it. Where PTX is not known the newest is taken to be there: no alarm."""
        ptx = {"none": None, None: self.arch[-1]}.get(self.ptx, self.ptx)
        binary = tuple(f"sm_{capability.replace('.', '')}" for capability in self.arch)
        return (*binary, f"compute_{ptx.replace('.', '')}") if ptx else binary


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    release: tuple[Release, ...]
    code: tuple[Code, ...]


@cache
def _table() -> _Table:
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table)


def releases() -> tuple[Release, ...]:
    """Oldest first."""
    return _table().release


def release(version: str) -> Release | None:
    """Of `2.9.1` or `2.9.1+cu128`; None where the table does not have it."""
    public = version.partition("+")[0]
    return next((row for row in releases() if row.version == public), None)


def code(version: str, cuda: str, machine: str = "x86_64") -> Code | None:
    """Of the wheels of a version's minor release for one CUDA (`12.8`)."""
    minor = ".".join(version.split(".")[:2])
    return next((row for row in _table().code if (row.torch, row.cuda, row.machine) == (minor, cuda, machine)), None)
