"""Shared libraries: which CUDA libraries are installed where, and which the loader would take."""

from gpudoctor.facts.base import Fact, Subject


class WheelLibrary(Fact, frozen=True, kw_only=True):
    """One nvidia-* wheel (or conda package) of the interpreter examined."""

    package: str
    """As installed, such as `nvidia-cudnn-cu13`."""
    version: str | None = None
    library: str | None = None
    """`cudnn`, `nccl`, `cublas`, `nvjitlink`, …"""
    cuda_major: int | None = None
    files: tuple[str, ...] = ()
    """Paths of its .so files, relative to site-packages."""


class SystemLibrary(Fact, frozen=True, kw_only=True):
    """A CUDA library outside the wheels."""

    library: str
    path: str
    version: str | None = None
    via: str | None = None
    """`LD_LIBRARY_PATH`, `LD_PRELOAD`, `ldconfig`."""


class DamagedFile(Fact, frozen=True, kw_only=True):
    """A file that differs from its RECORD."""

    package: str
    path: str
    seen: str
    """`missing`, `N bytes` or `hash …`."""
    wanted: str


class Libraries(Subject, frozen=True, kw_only=True):
    """Wheels, system copies, search path."""

    wheels: tuple[WheelLibrary, ...] | None = None
    system: tuple[SystemLibrary, ...] | None = None
    damaged: tuple[DamagedFile, ...] | None = None
    """Empty: all sizes agree with RECORD. None: not looked at."""
    ld_library_path: tuple[str, ...] = ()
    ld_preload: tuple[str, ...] = ()
    cuda_home: str | None = None
    nvcc_version: str | None = None
    nvcc_path: str | None = None
