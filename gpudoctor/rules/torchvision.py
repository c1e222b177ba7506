"""Rules on torchvision and torchaudio, whose operators are compiled for one torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.packages import Package
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.extensions import clash, death
from gpudoctor.rules.versions import allows, is_release, numbers, package_of, torch_tag, torch_version
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import torch_releases

FREE_SINCE = {"torchvision": ((0, 29, 1), ">=2.14.0"), "torchaudio": ((2, 11, 0), "")}
"""From this version on a package fits more than one torch, and which (METADATA of the wheels on PyPI, 2026-12-01)."""
NO_OPERATORS = re.compile(r"operator torch(?:vision|audio)::\w+ does not exist|Couldn't load custom C\+\+ ops")


@rule(
    "TOR006",
    "torchvision-mismatch",
    Severity.ERROR,
    why="torchvision's operators are compiled for one torch; beside another they do not load",
    fix=Fix("install the torchvision made for this torch, from the index torch came from"),
    confirm='python -c "import torchvision; torchvision.ops.nms"; pip check',
    source="METADATA of the installed torchvision; table of versions in the README of pytorch/vision",
)
def torchvision_mismatch(machine: Snapshot) -> Iterator[Evidence]:
    """torchvision requires another torch, was built for another CUDA, or its operators do not load.

    Judged by the requirement in its own metadata: from 0.29.1 on it fits more than one torch. A torch built from
    source counts as the release it becomes, and two CUDA of one major are no mismatch. Where another patch release
    is required, or the operators load all the same, it is a warning.
    """
    yield from _mismatch(machine, "torchvision")
    package, cuda = package_of(machine, "torchvision"), torch_tag(machine)
    if package is None or cuda is None or package.local_cuda is None:
        return
    # torchvision compares majors alone when it is imported (torchvision/extension.py).
    if _major(package.local_cuda) != _major(cuda):
        yield _other_build(package, package.local_cuda, cuda)


@rule(
    "TOR007",
    "torchaudio-mismatch",
    Severity.ERROR,
    why="torchaudio's operators are compiled for one torch; beside another they do not load",
    fix=Fix("install the torchaudio made for this torch, from the index torch came from"),
    confirm='python -c "import torchaudio"; pip check',
    source="METADATA of the installed torchaudio; torchaudio's table of compatible versions",
)
def torchaudio_mismatch(machine: Snapshot) -> Iterator[Evidence]:
    """torchaudio requires another torch, was built for another CUDA, or its operators do not load.

    Judged by the requirement in its own metadata: 2.11 has none. A build for the CPU beside a torch for CUDA is a
    warning: only a few operators then lack on the GPU.
    """
    yield from _mismatch(machine, "torchaudio")
    package, cuda = package_of(machine, "torchaudio"), torch_tag(machine)
    if package is None or cuda is None or package.local_cuda is None or _is_free(package):
        return
    # torchaudio compares major and minor when it is imported (torchaudio/_extension/utils.py).
    if package.local_cuda != cuda:
        yield _other_build(package, package.local_cuda, cuda, Severity.WARNING if package.local_cuda == "cpu" else None)


def _mismatch(machine: Snapshot, name: str) -> Iterator[Evidence]:
    """What both have in common: operators that do not load, and a requirement this torch does not meet."""
    package, torch = package_of(machine, name), torch_version(machine)
    if package is None:
        return
    error = package.import_error or ""
    broken = NO_OPERATORS.search(error) is not None or clash(machine, package) is not None
    if broken:
        yield Evidence(where=name, what="loading its operators", seen=error or death(package), wanted="no error")
    wanted = package.requires_torch or _made_for(package)
    if torch is None or not wanted or allows(wanted, torch):
        return
    # The same minor release has the same C++ interface, so a patch apart is against the metadata, but works.
    near = package.imported is True or (not broken and _minor(wanted.lstrip("=")) == _minor(torch))
    yield Evidence(
        where=name,
        what="torch",
        seen=torch,
        wanted=f"{wanted.removeprefix('==')}, for {name} {package.version}",
        severity=Severity.WARNING if near else None,
        confidence="certain" if package.requires_torch else "likely",
        fix=_pair(machine, name),
    )


def _pair(machine: Snapshot, name: str) -> tuple[Fix, ...]:
    """The version made for this torch, with a command where PyPI's wheel is the right one."""
    torch = torch_version(machine)
    row = torch_releases.release(torch) if torch is not None else None
    version = getattr(row, name) if row is not None else None
    if row is None or version is None:
        return ()
    default = torch_tag(machine) == "cu" + row.cuda.replace(".", "")
    text = f"install {name} {version}, from the index torch came from"
    return (Fix(text, f"pip install {name}=={version}" if default else None),)


def _made_for(package: Package) -> str | None:
    """The requirement that goes with a version, for text that does not show the metadata; None where not known."""
    version = numbers(package.version)
    if version is None or len(version) < 3 or not is_release(package.version):
        return None
    since, requirement = FREE_SINCE[package.name]
    if version >= since:
        return requirement or None
    rows = [(row, getattr(row, package.name) or "") for row in torch_releases.releases()]
    minor = f"{version[0]}.{version[1]}."
    # 0.29.0 was made for 2.14 and 0.29.1 for 2.15, so the whole number counts first.
    made = [row for row, its in rows if numbers(its) == version] or [row for row, its in rows if its.startswith(minor)]
    return "==" + ".".join(made[-1].version.split(".")[:2]) + ".*" if made else None


def _minor(version: str) -> list[str]:
    return version.split("+")[0].split(".")[:2]


def _is_free(package: Package) -> bool:
    return (numbers(package.version) or (0,)) >= FREE_SINCE[package.name][0]


def _major(tag: str) -> str:
    """`cu13` of `cu130`."""
    return tag[:-1] if tag.startswith("cu") else tag


def _other_build(package: Package, seen: str, wanted: str, severity: Severity | None = None) -> Evidence:
    return Evidence(
        where=package.name,
        what="CUDA it was built for",
        seen=seen,
        wanted=f"{wanted}, as torch",
        severity=severity,
    )


RULES: tuple[Rule[Snapshot], ...] = (torchvision_mismatch, torchaudio_mismatch)
