"""The CUDA libraries that wheels and conda packages bring: versions, files, and whether the files are still theirs."""

from __future__ import annotations

import csv
import os
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gpudoctor.facts.libraries import DamagedFile, WheelLibrary
from gpudoctor.probes.interpreter import Interpreter
from gpudoctor.probes.system import System

LIBRARY = (
    "cublas|cuda[-_]cupti|cuda[-_]nvrtc|cuda[-_]runtime|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|"
    "nvjitlink|nvshmem|nvtx"
)
FOLDER = re.compile(rf"nvidia[-_](?P<library>{LIBRARY})(?:[-_]cu(?P<cuda>\d+))?-(?P<version>[^-]+)\.dist-info")
TORCH_FOLDER = re.compile(r"torch-(?P<version>[^-]+)\.dist-info")
CONDA_FILE = re.compile(
    r"(?P<package>(?:lib)?(?P<library>cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvjitlink)|cuda-(?P<part>cudart|nvrtc))"
    r"-(?P<version>[\d.]+)-[^-]+\.json"
)
SHORT = {"cuda_runtime": "cudart", "cuda_nvrtc": "nvrtc", "cuda_cupti": "cupti"}
NUMBERED_AS_CUDA = {"cublas", "cudart", "cupti", "nvjitlink", "nvrtc", "nvtx"}
"""Libraries whose own major version is CUDA's."""
CUDA_FOLDER = re.compile(r"^nvidia/cu(\d+)/")
PATCHED = "/nix/store/"
"""Nix sets the search paths of the libraries it installs, and leaves RECORD as it was."""
SHARED = re.compile(r"\.so(\.[\d.]+)?$")
BUNDLED = re.compile(r"^torch/lib/lib(cudnn|cublas|nccl|nvJitLink|cusparse|cufft|curand|cusolver)\w*\.so\.\d+$")


class Wheel(msgspec.Struct):
    """A distribution and those of its files that are shared libraries."""

    package: str
    entry: str
    """Its site-packages, as the interpreter names it."""
    folder: Path
    """The same, below the root."""
    version: str
    library: str | None
    """None for torch itself."""
    cuda: str | None
    sizes: dict[str, int | None] = msgspec.field(default_factory=dict)
    """Relative path → bytes as RECORD has them."""
    judged: bool = True
    """Its installer leaves the files as RECORD describes them."""


def read(system: System, interpreter: Interpreter) -> tuple[tuple[WheelLibrary, ...], tuple[DamagedFile, ...]]:
    """What each wheel holds, and the files that are no wheel's any more."""
    found = list(_wheels(system, interpreter))
    claims = _claims(found)
    wheels = [_library(wheel, claims) for wheel in found if wheel.library is not None]
    bundled = [library for wheel in found if wheel.library is None for library in _bundled(wheel)]
    damaged = [file for wheel in found if wheel.judged for file in _damaged(wheel, claims)]
    return (*wheels, *bundled, *_conda(system, interpreter)), tuple(damaged)


def _wheels(system: System, interpreter: Interpreter) -> Iterator[Wheel]:
    """First on the path wins; of several versions in one folder (leftovers of an upgrade) the one written last."""
    seen: set[str] = set()
    for entry in interpreter.path:
        site = system.path(entry)
        here: dict[str, tuple[float, Wheel, Path]] = {}
        for name, written in _dist_infos(site):
            wheel = _wheel(entry, site, name)
            if wheel is not None and written >= here.get(wheel.package, (0.0,))[0]:
                here[wheel.package] = (written, wheel, site / name)
        for package, (_, wheel, info) in here.items():
            if package in seen:
                continue
            seen.add(package)
            wheel.sizes = dict(_record(info))
            wheel.judged = _text(info / "INSTALLER").strip() != "conda" and not entry.startswith(PATCHED)
            yield wheel


def _dist_infos(site: Path) -> list[tuple[str, float]]:
    """Names and times of change, sorted; empty where the folder is none (a zip, not there)."""
    try:
        with os.scandir(site) as entries:
            return sorted(
                (entry.name, entry.stat().st_mtime)
                for entry in entries
                if entry.name.startswith(("nvidia", "torch-")) and entry.name.endswith(".dist-info")
            )
    except OSError:
        return []


def _wheel(entry: str, site: Path, name: str) -> Wheel | None:
    if match := FOLDER.fullmatch(name):
        library = match["library"].replace("-", "_")
        package = name[: match.end("cuda") if match["cuda"] else match.end("library")].replace("_", "-")
        return Wheel(package, entry, site, match["version"], SHORT.get(library, library), match["cuda"])
    if match := TORCH_FOLDER.fullmatch(name):
        return Wheel("torch", entry, site, match["version"], None, None)
    return None


def _record(info: Path) -> Iterator[tuple[str, int | None]]:
    """Paths and sizes of the shared libraries in a RECORD; nothing where there is none."""
    lines = (line for line in _text(info / "RECORD").splitlines() if ".so" in line)
    for row in csv.reader(lines):
        if len(row) == 3 and SHARED.search(row[0]) and row[0].startswith(("nvidia/", "torch/lib/", "torch/_C")):
            yield row[0], int(row[2]) if row[2].isdigit() else None


Claims = dict[Path, dict[str, int | None]]
"""File → package → size it has there."""


def _claims(wheels: Iterable[Wheel]) -> Claims:
    claims: Claims = {}
    for wheel in wheels:
        for path, size in wheel.sizes.items():
            claims.setdefault(wheel.folder / path, {})[wheel.package] = size
    return claims


def _library(wheel: Wheel, claims: Claims) -> WheelLibrary:
    folders = {match.group(1) for path in wheel.sizes if (match := CUDA_FOLDER.match(path))}
    major = wheel.cuda or next(iter(folders), None)
    if major is None and wheel.library in NUMBERED_AS_CUDA and wheel.sizes:
        major = wheel.version.split(".")[0]
    return WheelLibrary(
        package=wheel.package,
        version=wheel.version,
        library=wheel.library,
        cuda_major=int(major) if major and major.isdigit() else None,
        folder=wheel.entry,
        files=tuple(wheel.sizes),
        overwritten=tuple(path for path in wheel.sizes if _is_overwritten(wheel, path, claims)),
    )


def _is_overwritten(wheel: Wheel, path: str, claims: Claims) -> bool:
    mine = wheel.sizes[path]
    others = {size for package, size in claims[wheel.folder / path].items() if package != wheel.package} - {None, mine}
    return bool(others) and mine is not None and _size(wheel.folder / path) in others


def _bundled(torch: Wheel) -> Iterator[WheelLibrary]:
    """CUDA libraries inside torch's own wheel: those of PyTorch's index before 2.1 had them all."""
    files: dict[str, list[str]] = {}
    for path in torch.sizes:
        if match := BUNDLED.match(path):
            files.setdefault(match.group(1).lower(), []).append(path)
    for library, paths in sorted(files.items()):
        yield WheelLibrary(package="torch", library=library, folder=torch.entry, files=tuple(paths))


def _damaged(wheel: Wheel, claims: Claims) -> Iterator[DamagedFile]:
    for path, wanted in wheel.sizes.items():
        file = wheel.folder / path
        sizes = claims[file].values()
        size = _size(file)
        # A file that another wheel has replaced is whole, and another finding.
        if wanted is None or None in sizes or size in sizes:
            continue
        yield DamagedFile(
            package=wheel.package,
            path=path,
            seen="missing" if size is None else f"{size} bytes",
            wanted=f"{wanted} bytes",
            whole=None if size is None else _is_whole(file, size),
        )


def _is_whole(path: Path, size: int) -> bool | None:
    """An ELF file's section table stands at its end: past it, the file was cut off."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except OSError:
        return None
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        return None
    order = "<" if header[5] == 1 else ">"
    (table,) = struct.unpack_from(order + "Q", header, 0x28)
    entry_size, entries = struct.unpack_from(order + "HH", header, 0x3A)
    return bool(table + entry_size * entries <= size)


def _conda(system: System, interpreter: Interpreter) -> Iterator[WheelLibrary]:
    for path in system.glob(f"{interpreter.prefix}/conda-meta/*.json") if interpreter.prefix else ():
        if match := CONDA_FILE.fullmatch(path.name):
            yield WheelLibrary(
                package=match["package"],
                version=match["version"],
                library=match["library"] or match["part"],
                conda=True,
            )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
