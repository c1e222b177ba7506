"""Shared libraries: which CUDA libraries are installed where, and which the loader would take."""

from gpudoctor.facts.base import Fact, Subject


class WheelLibrary(Fact, frozen=True, kw_only=True):
    """One nvidia-* wheel (or conda package) of the interpreter examined."""

    package: str
    """As installed, such as `nvidia-cudnn-cu13`."""
    version: str | None = None
    library: str | None = None
    """`cudnn`, `nccl`, `cublas`, `nvjitlink`, `cudart`, `nvrtc`, `cusparselt`, …"""
    cuda_major: int | None = None
    """CUDA it was built for; None where neither its name nor its files tell."""
    folder: str | None = None
    """The site-packages it lies in."""
    files: tuple[str, ...] = ()
    """Paths of its .so files, relative to that folder; empty where not known (pasted text, conda)."""
    overwritten: tuple[str, ...] = ()
    """Of these, the ones another wheel's copy has replaced, by size."""
    conda: bool = False
    """A conda package: its files lie in the environment's own lib folder."""


class SystemLibrary(Fact, frozen=True, kw_only=True):
    """A CUDA library outside the wheels."""

    library: str
    path: str
    """As the loader would open it, such as `/usr/local/cuda/lib64/libcublas.so.12`."""
    version: str | None = None
    """From the name of the file it leads to."""
    via: str | None = None
    """`LD_LIBRARY_PATH`, `LD_PRELOAD`, `ldconfig`."""


class DamagedFile(Fact, frozen=True, kw_only=True):
    """A file that differs from its RECORD."""

    package: str
    path: str
    seen: str
    """`missing`, `N bytes` or `hash …`."""
    wanted: str
    whole: bool | None = None
    """Its ELF tables end inside the file: changed (stripped, patched), not cut off. None where it is no ELF file."""


class Libraries(Subject, frozen=True, kw_only=True):
    """Wheels, system copies, search path."""

    wheels: tuple[WheelLibrary, ...] | None = None
    system: tuple[SystemLibrary, ...] | None = None
    damaged: tuple[DamagedFile, ...] | None = None
    """Empty: all sizes agree with RECORD. None: not looked at."""
    ld_library_path: tuple[str, ...] = ()
    """Folders in it, in the loader's order."""
    ld_preload: tuple[str, ...] = ()
    cuda_home: str | None = None
    """CUDA_HOME, else CUDA_PATH, as set."""
    cuda_home_exists: bool | None = None
    """None where neither is set."""
    toolkits: tuple[str, ...] | None = None
    """Folders of CUDA toolkits, first the one that extensions are built with (CUDA_HOME, else nvcc's on PATH, else
    /usr/local/cuda); empty where there is none, None where not looked for."""
    nvcc_path: str | None = None
    """The compiler that extensions are built with."""
    nvcc_version: str | None = None
    """Its CUDA, such as `12.8`."""
