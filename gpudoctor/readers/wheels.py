"""Make facts of package names and versions, whichever tool listed them: collect_env, pip, uv or conda."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gpudoctor.facts.libraries import WheelLibrary
from gpudoctor.facts.packages import Package
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.tables import torch_releases
from gpudoctor.tables.cuda import numbers

MOST = 5000
"""Packages of one environment."""

LIBRARIES = {name: name for name in ("cublas", "cudnn", "cufft", "cufile", "curand", "cusolver", "cusparse")}
LIBRARIES |= {name: name for name in ("cusparselt", "nccl", "nvjitlink", "nvshmem", "nvtx")}
LIBRARIES |= {"cuda-runtime": "cudart", "cuda-nvrtc": "nvrtc", "cuda-cupti": "cupti", "cuda-cudart": "cudart"}
"""Name on PyPI without `nvidia-` and `-cu12` → as our facts have it."""
NUMBERED_AS_CUDA = ("cudart", "nvrtc", "cupti", "nvjitlink", "cublas")
"""Libraries whose own major version is CUDA's."""
CONDA_LIBRARIES = {"libcublas": "cublas", "cuda-cudart": "cudart", "cuda-nvrtc": "nvrtc", "libnvjitlink": "nvjitlink"}
CONDA_LIBRARIES |= {"cudnn": "cudnn", "nccl": "nccl"}

_NVIDIA = re.compile(r"nvidia-(?P<library>[a-z-]{3,20}?)(?:-cu(?P<cuda>\d{2}))?")
_CUDA = re.compile(r"(?:^|[+._])cu(\d{2,3})\b")
_CONDA_CUDA = re.compile(r"cuda_?(\d{1,2}\.\d)")
_TAG = re.compile(r"\b(cu\d{2,3}|cpu|rocm[\d.]+)")
_OFFICIAL = re.compile(r"\d+\.\d+\.\d+(?:\+cu\d{2,3})?")


class Installed(NamedTuple):
    """One line of a list."""

    name: str
    """As PyPI normalises it."""
    version: str
    build: str = ""
    """Of a conda package, such as `py3.10_cuda12.1_cudnn8.9.2_0`; empty for a wheel."""


def normal(name: str) -> str:
    """`flash-attn` of `flash_attn` and `Flash.Attn`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(listed: Iterable[Installed]) -> tuple[Package, ...]:
    """All but torch itself and the libraries of CUDA, each once."""
    found: dict[str, Package] = {}
    for item in listed:
        if item.name in {"torch", "pytorch"} or library(item) is not None or item.name in found or len(found) >= MOST:
            continue
        tag = _TAG.search(item.version.partition("+")[2])
        found[item.name] = Package(name=item.name, version=item.version, local_cuda=tag[1].rstrip(".") if tag else None)
    return tuple(found.values())


def libraries(listed: Iterable[Installed]) -> tuple[WheelLibrary, ...]:
    """Those of CUDA, each package once."""
    found: dict[str, WheelLibrary] = {}
    for item in listed:
        wheel = library(item)
        if wheel is not None and len(found) < MOST:
            found.setdefault(item.name, wheel)
    # From CUDA 13 on names have no -cu13, and only some libraries are numbered as CUDA is: all are of one toolkit.
    plain = {wheel.library: wheel for wheel in found.values() if wheel.cuda_major is None and not wheel.conda}
    telling = next((plain[name] for name in NUMBERED_AS_CUDA if name in plain), None)
    major = numbers(telling.version or "")[:1] if telling is not None else ()
    return tuple(
        msgspec.structs.replace(wheel, cuda_major=major[0]) if major and wheel in plain.values() else wheel
        for wheel in found.values()
    )


def library(item: Installed) -> WheelLibrary | None:
    """None for a package that is none of CUDA's libraries. Its CUDA only where the name tells."""
    if item.build and (name := CONDA_LIBRARIES.get(item.name)) is not None:
        return WheelLibrary(package=item.name, version=item.version, library=name, conda=True)
    match = _NVIDIA.fullmatch(item.name)
    name = LIBRARIES.get(match["library"]) if match else None
    if match is None or name is None:
        return None
    major = int(match["cuda"]) if match["cuda"] else None
    return WheelLibrary(package=item.name, version=item.version, library=name, cuda_major=major)


def torch(listed: Iterable[Installed]) -> TorchBuild | None:
    """The torch in a list; None where it is not in it. The build is known where the version or conda tells it."""
    rows = [item for item in listed if item.name in {"torch", "pytorch"} and item.version]
    row = next((item for item in rows if item.name == "torch"), next(iter(rows), None))
    if row is None:
        return None
    conda = next((item.build for item in rows if item.build), "")
    cuda, rocm, build = told_by_version(row.version)
    if build is None and (match := _CONDA_CUDA.search(conda)):
        cuda, build = match[1], "cuda"
    elif build is None and "cpu" in conda:
        build = "cpu"
    return TorchBuild(installed=True, version=row.version, cuda=cuda, rocm=rocm, build=build)


def told_by_version(version: str) -> tuple[str | None, str | None, str | None]:
    """CUDA, ROCm and kind of build that the local part of torch's version names."""
    local = version.partition("+")[2]
    if match := _CUDA.search("+" + local):
        digits = match[1]
        return f"{digits[:-1]}.{digits[-1]}", None, "cuda"
    if local.startswith("rocm"):
        match = re.match(r"rocm([\d.]*\d)", local)
        return None, match[1] if match else None, "rocm"
    if local in {"cpu", "xpu"} or local.startswith("cpu."):
        return None, None, local[:3]
    return None, None, None


def arch_list(version: str | None, cuda: str | None, machine: str | None) -> tuple[str, ...] | None:
    """GPU code in an official wheel for Linux, from the table of releases; None for every other build."""
    if version is None or cuda is None or _OFFICIAL.fullmatch(version) is None:
        return None
    row = torch_releases.code(version, ".".join(cuda.split(".")[:2]), machine or "x86_64")
    return row.arch_list if row is not None else None
