"""Rules on libraries that stand in front of the ones torch came with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.libraries import WheelLibrary
from gpudoctor.facts.torch import LoadedVersion
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.versions import numbers
from gpudoctor.snapshot import Snapshot

SYMBOL = {
    "cudnn": re.compile(r"symbol:? (cudnn\w+)"),
    "nccl": re.compile(r"symbol:? (p?nccl\w+)"),
    "cublas": re.compile(r"symbol:? (cublas\w+)"),
    "nvjitlink": re.compile(r"symbol:? (_*nvJitLink\w+)"),
}
"""What the loader misses where the copy it took is too old: "undefined symbol: X", "symbol X version Y not defined"."""
SOURCE = "the libraries mapped by a process that imported torch (/proc/self/maps), and their own version functions"
WITHOUT_PATH = Fix("start the job without LD_LIBRARY_PATH: torch's wheels need none", "unset LD_LIBRARY_PATH")
WITHOUT_PRELOAD = Fix("take it out of LD_PRELOAD and of the loader's configuration, or put the wheel's version there")
MAPPED = "python -c \"import torch; torch.backends.cudnn.version(); print(open('/proc/self/maps').read())\" | grep '{}'"


@rule(
    "LIB001",
    "cudnn-shadowed",
    Severity.ERROR,
    why="torch refuses a cuDNN older than the one it was built for, and parts of two versions do not work together",
    fix=(WITHOUT_PATH, WITHOUT_PRELOAD),
    confirm=MAPPED.format("libcudnn"),
    source=SOURCE + "; torch/backends/cudnn/__init__.py",
)
def cudnn_shadowed(machine: Snapshot) -> Iterator[Evidence]:
    """The cuDNN in the process is older than torch was built for, or another than the wheel's (a warning).

    A cuDNN that is merely installed beside the wheel counts for nothing, nor does a newer one where there is no wheel
    (NVIDIA's images, conda).
    """
    yield from _shadowed(machine, "cudnn")


@rule(
    "LIB002",
    "nccl-shadowed",
    Severity.ERROR,
    why="torch calls functions an older NCCL lacks, and ranks with different versions do not come together",
    fix=(WITHOUT_PATH, WITHOUT_PRELOAD),
    confirm=MAPPED.format("libnccl"),
    source=SOURCE,
)
def nccl_shadowed(machine: Snapshot) -> Iterator[Evidence]:
    """The NCCL in the process is older than torch was built for, or another than the wheel's (a warning).

    Silent for an NCCL that is merely installed, and for a newer one where there is no wheel.
    """
    yield from _shadowed(machine, "nccl")


@rule(
    "LIB003",
    "cublas-shadowed",
    Severity.ERROR,
    why="an older cuBLAS lacks functions torch calls, or gives other speed and other last digits",
    fix=(WITHOUT_PATH, WITHOUT_PRELOAD),
    confirm=MAPPED.format("libcublas"),
    source=SOURCE,
)
def cublas_shadowed(machine: Snapshot) -> Iterator[Evidence]:
    """The cuBLAS in the process is older than torch was built for, or another than the wheel's (a warning).

    Silent for a cuBLAS that is merely installed, and for a newer one where there is no wheel.
    """
    yield from _shadowed(machine, "cublas")


@rule(
    "LIB004",
    "nvjitlink-shadowed",
    Severity.ERROR,
    why="cuSPARSE looks for symbols named after its own CUDA version, so an older nvJitLink stops the import of torch",
    fix=(WITHOUT_PATH, WITHOUT_PRELOAD),
    confirm=MAPPED.format("libnvJitLink"),
    source=SOURCE + "; readelf -d of nvidia-cusparse-cu12 12.5.8.93: RUNPATH, which loses to LD_LIBRARY_PATH",
)
def nvjitlink_shadowed(machine: Snapshot) -> Iterator[Evidence]:
    """The nvJitLink in the process is older than torch was built for, or another than the wheel's (a warning).

    Silent for one that is merely installed, and for a newer one where there is no wheel.
    """
    yield from _shadowed(machine, "nvjitlink")


def _shadowed(machine: Snapshot, name: str) -> Iterator[Evidence]:
    runtime = machine.torch_runtime
    if runtime is None:
        return
    row = next((row for row in runtime.libraries or () if row.name == name), None)
    where = (row.path if row is not None else None) or name
    if match := SYMBOL[name].search(f"{runtime.error or ''}\n{runtime.traceback or ''}"):
        yield Evidence(
            where=where, what=f"{name} that the loader took", seen=f"lacks {match.group(1)}", wanted="one that has it"
        )
    wheel = _wheel(machine, name)
    built = _built_for(row, wheel) if row is not None else None
    if row is None or row.loaded is None or built is None or same_version(row.loaded, built):
        return
    outside = row.path is not None and not is_of_wheel(row.path, wheel)
    older = _is_older(row.loaded, built, parts=3 if outside or row.path is None else 2)
    if older or (outside and wheel is not None):
        yield Evidence(
            where=where,
            what=f"{name} in the process",
            seen=row.loaded,
            wanted=f"{built}, which torch was built for" if row.compiled else f"{built}, the wheel's",
            severity=None if older else Severity.WARNING,
            fix=() if outside or row.path is None else (_required(machine, name, wheel),),
        )


def _required(machine: Snapshot, name: str, wheel: WheelLibrary | None) -> Fix:
    """Where the copy in use is a wheel's, it is the wheel that has the wrong version."""
    pin = machine.torch.pins.get(name) if machine.torch is not None else None
    command = f"python -m pip install --no-deps {wheel.package}=={pin}" if wheel is not None and pin else None
    return Fix(f"install the {name} that torch requires", command)


def _wheel(machine: Snapshot, name: str) -> WheelLibrary | None:
    """The wheel of a library for torch's CUDA, else the first."""
    wheels = (machine.libraries.wheels if machine.libraries is not None else None) or ()
    mine = [wheel for wheel in wheels if wheel.library == name and not wheel.conda]
    cuda = machine.torch.cuda.split(".")[0] if machine.torch is not None and machine.torch.cuda else None
    return next((wheel for wheel in mine if str(wheel.cuda_major) == cuda), next(iter(mine), None))


def _built_for(row: LoadedVersion, wheel: WheelLibrary | None) -> str | None:
    """As torch tells; else the wheel's, where the copy in use is another."""
    if row.compiled is not None:
        return row.compiled
    return wheel.version if wheel is not None and row.path is not None and not is_of_wheel(row.path, wheel) else None


def is_of_wheel(path: str, wheel: WheelLibrary | None) -> bool:
    """A mapped file belongs to an environment's packages.

    Links are followed in /proc/self/maps, into uv's cache for one, so the end of the path counts too.
    """
    inside = "/site-packages/" in path or "/dist-packages/" in path
    return inside or (wheel is not None and any(path.endswith("/" + file) for file in wheel.files))


def same_version(first: str | None, second: str | None) -> bool:
    """As far as both tell: `9.10.2` and `9.10.2.21` are the same. False where one does not tell."""
    one, other = numbers(first), numbers(second)
    if one is None or other is None:
        return False
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _is_older(loaded: str, built: str, parts: int) -> bool:
    """By so many parts at most: within the packages of an environment a patch release more or less works."""
    one, other = numbers(loaded), numbers(built)
    if one is None or other is None:
        return False
    shared = min(len(one), len(other), parts)
    return one[:shared] < other[:shared]


RULES: tuple[Rule[Snapshot], ...] = (cudnn_shadowed, nccl_shadowed, cublas_shadowed, nvjitlink_shadowed)
