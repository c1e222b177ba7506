"""Read which CUDA libraries wheels bring, which others the loader could take, and the toolkit extensions build with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpudoctor.facts.libraries import Libraries, SystemLibrary
from gpudoctor.probes import wheels
from gpudoctor.probes.interpreter import Interpreter, examine
from gpudoctor.probes.system import NotRead, System

NAME = re.compile(
    r"lib(cublas|cublasLt|cudart|cudnn|cufft|cupti|curand|cusolver|cusparse|cusparseLt|nccl|nvJitLink|nvrtc|nvshmem_host)"
    r"(?:_\w+)?\.so\.\d+"
)
"""A library as others ask for it: with the one number of its SONAME. `libcudnn_ops.so.9` is a part of cuDNN."""
LIBRARY = {"cublasLt": "cublas", "cusparseLt": "cusparselt", "nvJitLink": "nvjitlink", "nvshmem_host": "nvshmem"}
VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
CACHED = re.compile(r"^\s*(?P<name>\S+) \(.*\) => (?P<path>/\S+)$", re.MULTILINE)
RELEASE = re.compile(r"release (\d+\.\d+)")
DEFAULT_TOOLKIT = "/usr/local/cuda"


def read(system: System) -> Libraries:
    """Everything from files, ldconfig's cache and nvcc; what a process really has mapped is in TorchRuntime."""
    unread: dict[str, str] = {}
    try:
        interpreter: Interpreter | None = examine(system)
    except NotRead as error:
        interpreter, unread["wheels"] = None, str(error)
    found, damaged = wheels.read(system, interpreter) if interpreter is not None else (None, None)
    folders = _list(system.environ.get("LD_LIBRARY_PATH", ""), ":")
    preloaded = _list(system.environ.get("LD_PRELOAD", ""), "[: ]")
    own = tuple(str(system.path(entry)) for entry in interpreter.path) if interpreter is not None else ()
    home = system.environ.get("CUDA_HOME") or system.environ.get("CUDA_PATH") or None
    toolkits, nvcc = _toolkits(system, home)
    return Libraries(
        wheels=found,
        system=tuple(_system(system, folders, preloaded, own)),
        damaged=damaged,
        ld_library_path=folders,
        ld_preload=preloaded,
        cuda_home=home,
        cuda_home_exists=None if home is None else system.path(home).is_dir(),
        toolkits=toolkits,
        nvcc_path=nvcc,
        nvcc_version=_nvcc_version(system, nvcc),
        unread=unread,
    )


def _list(value: str, separator: str) -> tuple[str, ...]:
    return tuple(entry for entry in re.split(separator, value) if entry)


def _system(
    system: System, folders: tuple[str, ...], preloaded: tuple[str, ...], own: tuple[str, ...]
) -> Iterator[SystemLibrary]:
    """In the loader's order. Folders of the interpreter's own wheels are left out: they hold no other copy."""
    candidates = [(path, "LD_PRELOAD") for path in preloaded]
    candidates += [(f"{folder}/{name}", "LD_LIBRARY_PATH") for folder in folders for name in _names(system, folder)]
    candidates += [(path, "ldconfig") for path in _cached(system)]
    seen: set[str] = set()
    for path, via in candidates:
        match = NAME.fullmatch(path.rpartition("/")[2])
        if match is None or path in seen:
            continue
        seen.add(path)
        with suppress(OSError, RuntimeError):  # a link that leads nowhere, or to itself
            file = system.path(path).resolve(strict=True)
            if not str(file).startswith(tuple(f"{entry}/" for entry in own)):
                library = LIBRARY.get(match.group(1), match.group(1))
                version = VERSION.search(file.name)
                yield SystemLibrary(library=library, path=path, version=version.group(1) if version else None, via=via)


def _names(system: System, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(system.path(folder)))  # noqa: PTH208 - names alone
    except OSError:
        return []


def _cached(system: System) -> list[str]:
    if not system.live:
        return []
    for command in ("ldconfig", "/sbin/ldconfig"):
        with suppress(NotRead):
            output = system.run([command, "-p"], timeout_s=2.0)
            return [match["path"] for match in CACHED.finditer(output) if NAME.fullmatch(match["name"])]
    return []


def _toolkits(system: System, home: str | None) -> tuple[tuple[str, ...], str | None]:
    """Folders and nvcc. The first folder is the one that torch.utils.cpp_extension would choose."""
    path = _list(system.environ.get("PATH", os.defpath), os.pathsep)
    on_path = next((f"{folder}/nvcc" for folder in path if _executable(system.path(f"{folder}/nvcc"))), None)
    chosen = home or DEFAULT_TOOLKIT
    if home is None and on_path is not None and on_path.endswith("/bin/nvcc"):
        chosen = on_path.removesuffix("/bin/nvcc")
    others = [f"/usr/local/{folder.name}" for folder in system.glob("/usr/local/cuda-*")]
    folders = tuple(folder for folder in dict.fromkeys((chosen, *others)) if system.path(folder).is_dir())
    inside = f"{chosen.rstrip('/')}/bin/nvcc"
    return folders, inside if _executable(system.path(inside)) else on_path


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _nvcc_version(system: System, nvcc: str | None) -> str | None:
    """`major.minor`, from the note its toolkit carries, else from itself; None where it is not there."""
    if nvcc is None:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(system.text(nvcc.removesuffix("bin/nvcc") + "version.json"))
        return ".".join(str(note["cuda"]["version"]).split(".")[:2])
    if not system.live:
        return None
    with suppress(NotRead):
        match = RELEASE.search(system.run([nvcc, "--version"], timeout_s=2.0))
        return match.group(1) if match else None
    return None
