"""Rules on shared libraries: which copy is loaded, and whether the installed ones are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.libraries import DamagedFile, SystemLibrary, WheelLibrary
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import shadows
from gpudoctor.rules.shadows import is_of_wheel, same_version
from gpudoctor.snapshot import Snapshot

SONAME = re.compile(r"(lib\w+\.so\.\d+)[\d.]*$")
ONE_NAME = {"nccl", "cusparselt", "nvshmem"}
"""Libraries whose file has the same name for every CUDA, so that their wheels write the same file."""
COMPILE_AT_RUN_TIME = ("deepspeed", "flashinfer-python")
MOST_FILES = 5
"""Named of one damaged package."""


@rule(
    "LIB005",
    "two-cuda-generations",
    Severity.ERROR,
    why="both wheels write the same files, the last one installed wins, and uninstalling either removes them for both",
    fix=Fix("uninstall both, then install the one torch requires again"),
    confirm="pip list | grep nvidia-",
    source="RECORD of the installed wheels; METADATA of torch",
)
def two_cuda_generations(machine: Snapshot) -> Iterator[Evidence]:
    """Wheels of one library for two CUDA generations share files.

    Silent for different libraries, and for wheels that keep to folders or file names of their own (cuBLAS for 12 and
    13). Where this torch uses neither wheel, or its own copy is the one in place, it is a warning.
    """
    torch = machine.torch
    cuda = torch.cuda.split(".")[0] if torch is not None and torch.cuda else None
    known = cuda is not None or (torch is not None and torch.build is not None)
    for first, second, shared in overlaps(machine):
        own = next((wheel for wheel in (first, second) if str(wheel.cuda_major) == cuda), None)
        foreign = second if own is first else first
        unharmed = own is not None and not own.overwritten and (bool(foreign.overwritten) or _imports(machine))
        unused = known and own is None
        names = f"{first.package} {first.version or ''} and {second.package} {second.version or ''}"
        yield Evidence(
            where=first.library or first.package,
            what="wheels",
            seen=" ".join(names.split()) + (f", both with {shared[0]}" if shared else ""),
            wanted=f"{own.package} alone" if own is not None else "one of them",
            severity=Severity.WARNING if unharmed or unused else None,
            confidence="certain" if shared else "likely",
            fix=(_one_of_both(first, second, own),) if own is not None else (),
        )


def _imports(machine: Snapshot) -> bool:
    runtime = machine.torch_runtime
    return runtime is not None and runtime.version is not None and runtime.error is None


def overlaps(machine: Snapshot) -> Iterator[tuple[WheelLibrary, WheelLibrary, tuple[str, ...]]]:
    """Pairs of wheels of one library and two CUDA, with the files both write; none where only their names tell."""
    wheels = [
        wheel
        for wheel in (machine.libraries.wheels if machine.libraries is not None else None) or ()
        if wheel.library is not None and wheel.cuda_major is not None and not wheel.conda
    ]
    for index, first in enumerate(wheels):
        for second in wheels[index + 1 :]:
            if first.library != second.library or first.cuda_major == second.cuda_major:
                continue
            shared = tuple(path for path in first.files if path in second.files)
            if first.files and second.files:
                if shared and first.folder == second.folder:
                    yield first, second, shared
            elif first.library in ONE_NAME or (first.library == "cudnn" and _major(first) == _major(second)):
                yield first, second, ()


def _major(wheel: WheelLibrary) -> str:
    return (wheel.version or "").split(".")[0]


def _one_of_both(first: WheelLibrary, second: WheelLibrary, own: WheelLibrary) -> Fix:
    again = f"{own.package}=={own.version}" if own.version else own.package
    return Fix(
        "uninstall both, then install the one torch requires again",
        f"pip uninstall -y {first.package} {second.package} && pip install --no-deps {again}",
    )


@rule(
    "LIB006",
    "cuda-in-ld-library-path",
    Severity.WARNING,
    why="NVIDIA's libraries look for each other in LD_LIBRARY_PATH before their own folders, so two versions get mixed",
    fix=Fix("start the job without it; torch's wheels need no LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH"),
    confirm="ls ${LD_LIBRARY_PATH//:/ } | grep -E 'libcu|libnccl|libnvJitLink'",
    source="ld.so(8), order of DT_RPATH, LD_LIBRARY_PATH and DT_RUNPATH; pytorch/builder pull request 1150; "
    "readelf -d of libcusparse.so.12 in nvidia-cusparse-cu12 12.5.8.93",
    because=("LIB001", "LIB002", "LIB003", "LIB004"),
)
def cuda_in_ld_library_path(machine: Snapshot) -> Iterator[Evidence]:
    """A folder in LD_LIBRARY_PATH holds a library under the very name a wheel brings, in another version.

    Silent without wheels (NVIDIA's images, conda), for the same version, for a toolkit whose libraries have other
    names (CUDA 11 beside a torch for 12), and for each library that a process was seen to take from the wheel.
    torch's own libraries carry a DT_RPATH, which wins over LD_LIBRARY_PATH; those below them do not.
    """
    libraries = machine.libraries
    if libraries is None or not libraries.wheels or not libraries.system:
        return
    by_folder: dict[str, list[tuple[SystemLibrary, WheelLibrary]]] = {}
    for library in libraries.system:
        wheel = _wheel_with(libraries.wheels, library.path)
        if library.via != "LD_LIBRARY_PATH" or wheel is None or same_version(library.version, wheel.version):
            continue
        if not _taken_from_wheel(machine, library.path, wheel):
            by_folder.setdefault(library.path.rpartition("/")[0], []).append((library, wheel))
    for folder, pairs in by_folder.items():
        library, wheel = pairs[0]
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        yield Evidence(
            where="LD_LIBRARY_PATH",
            what=folder,
            seen=f"{library.path.rpartition('/')[2]} {library.version or ''}".rstrip() + more,
            wanted=f"that of {wheel.package} {wheel.version or ''}".rstrip(),
            confidence="likely",
        )


def _wheel_with(wheels: tuple[WheelLibrary, ...], path: str) -> WheelLibrary | None:
    name = "/" + path.rpartition("/")[2]
    return next((wheel for wheel in wheels if any(f"/{file}".endswith(name) for file in wheel.files)), None)


def _taken_from_wheel(machine: Snapshot, path: str, wheel: WheelLibrary) -> bool:
    """A process that imported torch had the wheel's copy mapped, under whatever full name."""
    name = SONAME.search(path)
    mapped = (machine.torch_runtime.mapped if machine.torch_runtime is not None else None) or ()
    same = [file for file in mapped if name and (match := SONAME.search(file)) and match.group(1) == name.group(1)]
    return bool(same) and all(is_of_wheel(file, wheel) for file in same)


@rule(
    "LIB007",
    "damaged-wheel",
    Severity.ERROR,
    why="a library that was cut off (full disk, interrupted install or copy) fails or crashes when it is loaded",
    fix=Fix("install the package again, with room on the disk"),
    confirm='python -c "import importlib.metadata as m; '
    "print([f for f in m.files('torch') if f.size and f.locate().stat().st_size != f.size])\"",
    source="RECORD of the installed wheel (PyPA specification, Recording installed projects)",
)
def damaged_wheel(machine: Snapshot) -> Iterator[Evidence]:
    """A shared library of torch or of an nvidia wheel is missing, or its size is not the one RECORD has.

    A file that was changed as a whole (stripped, patched) is a warning, and so is one removed from an installation that
    works. Silent where another wheel has replaced it (LIB005), for conda and Nix, which change files on purpose.
    """
    damaged = (machine.libraries.damaged if machine.libraries is not None else None) or ()
    for package in dict.fromkeys(file.package for file in damaged):
        files = [file for file in damaged if file.package == package]
        for file in files[:MOST_FILES]:
            yield Evidence(
                where=package,
                what=file.path,
                seen=file.seen,
                wanted=file.wanted,
                severity=None if _is_broken(machine, file) else Severity.WARNING,
                confidence="likely" if file.whole else "certain",
                fix=(_again(machine, package),),
            )


def _is_broken(machine: Snapshot, file: DamagedFile) -> bool:
    runs = machine.torch_runtime is not None and machine.torch_runtime.stage == "done"
    return not (file.whole or (file.seen == "missing" and runs))


def _again(machine: Snapshot, package: str) -> Fix:
    """torch itself comes from one of several indexes: a plain install could bring another build."""
    wheels = (machine.libraries.wheels if machine.libraries is not None else None) or ()
    version = next((wheel.version for wheel in wheels if wheel.package == package and package != "torch"), None)
    if version is None:
        return Fix(f"install {package} again from where it came, with room on the disk")
    text = "install it again, with room on the disk"
    return Fix(text, f"python -m pip install --force-reinstall --no-deps {package}=={version}")


@rule(
    "LIB008",
    "nvcc-differs",
    Severity.INFO,
    why="torch refuses to build extensions with a compiler of another CUDA major",
    fix=Fix("point CUDA_HOME to a toolkit of torch's CUDA major before building extensions"),
    confirm='nvcc --version; python -c "import torch; print(torch.version.cuda)"',
    source="torch/utils/cpp_extension.py, CUDA_MISMATCH_MESSAGE",
)
def nvcc_differs(machine: Snapshot) -> Iterator[Evidence]:
    """The toolkit's CUDA major is not the one torch was built for.

    It matters for building extensions alone; wheels run without a toolkit.
    """
    libraries, torch = machine.libraries, machine.torch
    if libraries is None or libraries.nvcc_version is None or torch is None or torch.cuda is None:
        return
    if libraries.nvcc_version.split(".")[0] != torch.cuda.split(".")[0]:
        yield Evidence(
            where=libraries.nvcc_path or "nvcc",
            what="CUDA",
            seen=libraries.nvcc_version,
            wanted=f"{torch.cuda}, as torch",
        )


@rule(
    "LIB009",
    "cuda-home-missing",
    Severity.INFO,
    why="extensions are then not found a compiler for, and packages that compile at run time fail",
    fix=Fix(
        "install the toolkit of torch's CUDA major and point CUDA_HOME to it, or unset a CUDA_HOME that leads nowhere"
    ),
    confirm='python -c "from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)"',
    source="torch/utils/cpp_extension.py, _find_cuda_home",
)
def cuda_home_missing(machine: Snapshot) -> Iterator[Evidence]:
    """CUDA_HOME names a folder that is not there, or there is no toolkit and a package compiles at run time.

    Silent without such a package: a torch from a wheel needs no toolkit.
    """
    libraries = machine.libraries
    if libraries is None:
        return
    if libraries.cuda_home is not None and libraries.cuda_home_exists is False:
        yield Evidence(where="CUDA_HOME", what="folder", seen=f"{libraries.cuda_home} is not there", wanted="a toolkit")
    elif libraries.toolkits == () and machine.torch is not None and machine.torch.cuda is not None:
        installed = machine.packages.installed if machine.packages is not None else ()
        needing = [package.name for package in installed if package.name in COMPILE_AT_RUN_TIME]
        if needing:
            yield Evidence(where="CUDA_HOME", what="toolkit", seen="none", wanted=f"one, for {', '.join(needing)}")


RULES: tuple[Rule[Snapshot], ...] = (
    *shadows.RULES,
    two_cuda_generations,
    cuda_in_ld_library_path,
    damaged_wheel,
    nvcc_differs,
    cuda_home_missing,
)
