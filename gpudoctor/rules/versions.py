"""Versions as rules compare them: of torch, of a package, of a requirement."""

from __future__ import annotations

import re

from gpudoctor.facts.packages import Package
from gpudoctor.snapshot import Snapshot


def package_of(machine: Snapshot, name: str) -> Package | None:
    """The installed package; None where it is not there, or packages were not read."""
    return machine.packages.get(name) if machine.packages is not None else None


def torch_version(machine: Snapshot) -> str | None:
    """With its local part."""
    facts = (machine.torch, machine.torch_runtime)
    return next((fact.version for fact in facts if fact is not None and fact.version is not None), None)


def torch_tag(machine: Snapshot) -> str | None:
    """`cu130` or `cpu`; None where torch's build is another (ROCm) or not known."""
    if machine.torch is not None and machine.torch.build in {"cpu", "cuda"}:
        cuda = machine.torch.cuda
        return "cpu" if machine.torch.build == "cpu" else f"cu{cuda.replace('.', '')}" if cuda else None
    match = re.search(r"\+(cu\d{2,3}|cpu)\b", torch_version(machine) or "")
    return match.group(1) if match else None


def numbers(version: str | None) -> tuple[int, ...] | None:
    """`(2, 9, 1)` of `2.9.1+cu128`."""
    match = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in match.group().split(".")) if match else None


def is_release(version: str | None) -> bool:
    """Not a build of one's own, whose number says little: `2.8.0a0+git1234`, NVIDIA's `…+nv25.05`, a nightly."""
    return re.fullmatch(r"[\d.]+(?:\.post\d+)?(?:\+(?:cu\d+|cpu|rocm[\d.]+|xpu))?", version or "") is not None


def allows(requirement: str, version: str) -> bool:
    """Whether a requirement admits a version; True where either is not as PEP 440 has it."""
    # Imported here: only machines with such packages need it, and it costs a tenth of a quick check's start.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        allowed, installed = SpecifierSet(requirement), Version(version)
    except (InvalidSpecifier, InvalidVersion):
        return True
    # A torch built from source, 2.9.0a0+git1234, counts as the release it becomes.
    return allowed.contains(installed, prereleases=True) or allowed.contains(installed.base_version, prereleases=True)
