"""Rules on the packages around torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import extensions, torchvision
from gpudoctor.rules.versions import allows, is_release, numbers, package_of, torch_version
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import torch_releases

NUMPY_2_SINCE = (2, 3)  # the first torch compiled for both numpy 1 and 2: pytorch/pytorch issue 107302
NUMPY_1 = re.compile(r"_ARRAY_API not found|compiled using NumPy 1\.x|numpy\.dtype size changed|multiarray failed")


@rule(
    "TOR008",
    "triton-mismatch",
    Severity.WARNING,
    why="torch.compile uses Triton's internals, which change from release to release",
    fix=Fix("install the Triton that torch requires"),
    confirm="pip check",
    source="METADATA of the installed torch",
)
def triton_mismatch(machine: Snapshot) -> Iterator[Evidence]:
    """The installed triton is not the one that torch requires.

    Silent where torch requires none (CPU builds), and for a torch or triton built from source.
    """
    triton, torch = package_of(machine, "triton"), torch_version(machine)
    if machine.packages is None or triton is None or triton.version is None or torch is None:
        return
    if machine.torch is not None and machine.torch.build not in {None, "cuda"}:
        return
    requires = machine.packages.torch_requires
    row = torch_releases.release(torch) if requires is None else None
    wanted = requires.get("triton") if requires is not None else f"=={row.triton}" if row and row.triton else None
    if not wanted or not is_release(torch) or not is_release(triton.version) or allows(wanted, triton.version):
        return
    yield Evidence(
        where="triton",
        what="version",
        seen=triton.version,
        wanted=f"{wanted.removeprefix('==')}, for torch {torch}",
        confidence="likely" if requires is None else "certain",
        fix=(Fix("install the Triton that torch requires", f"pip install 'triton{wanted}'"),),
    )


@rule(
    "TOR010",
    "numpy-abi",
    Severity.ERROR,
    why="code compiled for numpy 1 cannot exchange arrays with numpy 2: tensor.numpy() and from_numpy() fail",
    fix=(
        Fix("a newer torch is the lasting way out"),
        Fix("else stay with numpy 1", "pip install 'numpy<2'"),
    ),
    confirm='python -c "import torch; torch.zeros(1).numpy()"',
    source="pytorch/pytorch issue 107302: torch 2.3.0 is the first that supports numpy 2",
)
def numpy_abi(machine: Snapshot) -> Iterator[Evidence]:
    """numpy is 2 or newer and torch older than 2.3, or a package says that it was compiled for numpy 1.

    Silent where either version is unknown.
    """
    numpy, torch = package_of(machine, "numpy"), torch_version(machine)
    if machine.packages is None:
        return
    major, release = numbers(numpy.version if numpy else None), numbers(torch)
    if major and release and major >= (2,) and release < NUMPY_2_SINCE and numpy is not None:
        yield Evidence(where="numpy", what="version", seen=str(numpy.version), wanted=f"1.x, for torch {torch}")
    for package in machine.packages.installed:
        if NUMPY_1.search(package.import_error or ""):
            yield Evidence(where=package.name, what="import", seen=str(package.import_error), wanted="no error")


@rule(
    "TOR014",
    "no-c-compiler",
    Severity.WARNING,
    why="Triton compiles a small launcher with the C compiler, so the first call of a compiled model fails",
    fix=Fix("install a C compiler", "apt-get install -y gcc", safety="needs root"),
    confirm="command -v cc gcc clang; echo $CC",
    source="triton/runtime/build.py: Failed to find C compiler. Please specify via CC environment variable",
)
def no_c_compiler(machine: Snapshot) -> Iterator[Evidence]:
    """There is no C compiler on PATH nor in CC, and torch came with Triton; or Triton says that it finds none.

    Silent without Triton (CPU builds), on other systems than Linux, and where compilers were not looked for.
    """
    for text in machine.told("no_c_compiler"):
        yield Evidence(where="PATH", what="Triton", seen=text.words["reason"], wanted="a C compiler")
        return
    if machine.packages is None or machine.packages.compilers is None or machine.packages.compilers:
        return
    if machine.packages.get("triton") is None or torch_version(machine) is None:
        return
    if machine.host is not None and machine.host.system not in {None, "Linux"}:
        return
    yield Evidence(where="PATH", what="C compilers", seen="none of cc, gcc, clang, and no CC", wanted="one")


RULES: tuple[Rule[Snapshot], ...] = (
    *torchvision.RULES,
    triton_mismatch,
    *extensions.RULES,
    numpy_abi,
    no_c_compiler,
)
