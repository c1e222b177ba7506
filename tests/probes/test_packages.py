"""Packages around torch: metadata from real folders."""

import os
from pathlib import Path

from gpudoctor.facts.packages import Packages
from gpudoctor.probes import packages
from gpudoctor.probes.system import System

SITE = "opt/venv/lib/python3.12/site-packages"


def _distribution(site: Path, name: str, version: str, *lines: str) -> Path:
    about = site / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "\n".join(("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines))
    )
    return about


def _recorded(root: Path, **environ: str) -> Packages:
    return packages.read(System(root=root, python="/opt/venv/bin/python", environ=environ))


def test_a_requirement_on_torch_is_read_in_both_spellings(tmp_path: Path) -> None:
    site = tmp_path / SITE
    _distribution(site, "torchvision", "0.27.0", "Requires-Dist: torch (==2.12.0)", "Requires-Dist: numpy")
    _distribution(site, "torchaudio", "2.10.0", "Requires-Dist: torch==2.10.0", "Requires-Python: >=3.10")
    _distribution(site, "xformers", "0.0.33", "Requires-Dist: numpy", "Requires-Dist: torch>=2.9,<2.11")
    found = _recorded(tmp_path)
    assert [(package.name, package.requires_torch) for package in found.installed] == [
        ("torchaudio", "==2.10.0"),
        ("torchvision", "==2.12.0"),
        ("xformers", ">=2.9,<2.11"),
    ]
    assert found.installed[0].requires_python == ">=3.10"


def test_a_requirement_without_a_version_is_empty_and_none_is_none(tmp_path: Path) -> None:
    site = tmp_path / SITE
    _distribution(site, "flash_attn", "2.8.3", "Requires-Dist: torch", "Requires-Dist: torchvision>=1 ; extra == 'x'")
    _distribution(
        site, "torchaudio", "2.11.0", "Requires-Dist: torch-other==1", "Requires-Dist: torch==1; extra == 'x'"
    )
    flash, audio = _recorded(tmp_path).installed
    assert (flash.name, flash.requires_torch) == ("flash-attn", "")
    assert audio.requires_torch is None


def test_only_requirements_whose_condition_holds_count(tmp_path: Path) -> None:
    _distribution(
        tmp_path / SITE,
        "torchvision",
        "0.25.0",
        "Requires-Dist: torch==2.1.0; python_version < '3.12'",
        "Requires-Dist: torch==2.10.0; python_version >= '3.12'",
    )
    assert _recorded(tmp_path).installed[0].requires_torch == "==2.10.0"


def test_the_cuda_tag_comes_from_the_version_or_from_version_py(tmp_path: Path) -> None:
    site = tmp_path / SITE
    _distribution(site, "torchaudio", "2.9.1+cpu")
    _distribution(site, "torchvision", "0.27.0")
    (site / "torchvision").mkdir()
    (site / "torchvision/version.py").write_text("__version__ = '0.27.0+cu130'\ngit_version = 'abc'\n")
    assert [package.local_cuda for package in _recorded(tmp_path).installed] == ["cpu", "cu130"]


def test_what_torch_requires_of_triton_is_kept(tmp_path: Path) -> None:
    assert _recorded_empty(tmp_path).torch_requires is None
    _distribution(tmp_path / SITE, "torch", "2.9.1", "Requires-Dist: triton==3.5.1; python_version > '3.0'")
    assert _recorded(tmp_path).torch_requires == {"triton": "==3.5.1"}


def _recorded_empty(root: Path) -> Packages:
    (root / SITE).mkdir(parents=True)
    return _recorded(root)


def test_leftovers_of_an_upgrade_do_not_hide_the_package(tmp_path: Path) -> None:
    site = tmp_path / SITE
    old = _distribution(site, "torchvision", "0.19.0", "Requires-Dist: torch==2.4.0")
    _distribution(site, "torchvision", "0.20.0", "Requires-Dist: torch==2.5.0")
    (site / "torchvision-0.18.0.dist-info").mkdir()  # nothing in it
    os.utime(old, (1, 1))
    (found,) = _recorded(tmp_path).installed
    assert found.version == "0.20.0"


def test_metadata_that_is_not_text_costs_its_package_alone(tmp_path: Path) -> None:
    site = tmp_path / SITE
    (_distribution(site, "torchvision", "0.20.0") / "METADATA").write_bytes(b"\xff\xfe\x00\x80")
    _distribution(site, "numpy", "2.3.0")
    assert [package.name for package in _recorded(tmp_path).installed] == ["numpy"]


def test_compilers_are_those_on_path_and_in_cc(tmp_path: Path) -> None:
    (tmp_path / SITE).mkdir(parents=True)
    assert _recorded(tmp_path, PATH="/usr/bin").compilers == ()
    for name in ("usr/bin/gcc", "opt/gcc/bin/gcc-13"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert _recorded(tmp_path, PATH="/usr/bin").compilers == ("gcc",)
    found = _recorded(tmp_path, PATH="/usr/bin", CC="/opt/gcc/bin/gcc-13 -O2").compilers
    assert found == ("/opt/gcc/bin/gcc-13", "gcc")
