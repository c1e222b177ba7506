"""Torch from its files."""

import os
from pathlib import Path

import pytest

from gpudoctor.facts.torch import TorchBuild
from gpudoctor.probes import torch
from gpudoctor.probes.system import System

SITE = "opt/venv/lib/python3.12/site-packages"
VERSION = """from typing import Optional
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda!r}
git_version = 'abc'
hip: Optional[str] = {hip!r}
"""


def _install(
    root: Path,
    version: str = "2.9.1+cu128",
    cuda: str | None = "12.8",
    hip: str | None = None,
    requires: str = "",
    tag: str = "cp312-cp312-manylinux_2_28_x86_64",
) -> Path:
    site = root / SITE
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text("raise RuntimeError('nobody may import this')")
    (site / "torch/version.py").write_text(VERSION.format(version=version, cuda=cuda, hip=hip))
    about = site / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{requires}\nA readme.\n")
    (about / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
    return site


def _read(root: Path) -> TorchBuild:
    return torch.read(System(root=root, python="/opt/venv/bin/python", environ={}))


def test_a_cuda_wheel_is_read_whole(tmp_path: Path) -> None:
    _install(
        tmp_path,
        requires='Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"\n'
        "Requires-Dist: nvidia-nccl-cu12==2.27.5\nRequires-Dist: nvidia-cuda-runtime-cu12==12.8.90\n"
        "Requires-Dist: triton==3.5.1\n",
    )
    found = _read(tmp_path)
    assert (found.installed, found.version, found.cuda, found.build) == (True, "2.9.1+cu128", "12.8", "cuda")
    assert found.path == "/opt/venv/lib/python3.12/site-packages/torch"
    assert found.python_tags == ("cp312-cp312-manylinux_2_28_x86_64",)
    assert found.pins == {"cudnn": "9.10.2.21", "nccl": "2.27.5", "cudart": "12.8.90"}
    assert found.arch_list is not None
    assert "sm_70" in found.arch_list


def test_pins_inside_cuda_toolkit_are_found(tmp_path: Path) -> None:
    """Since 2.11 cuBLAS is pinned by the toolkit's metadata alone."""
    site = _install(
        tmp_path,
        "2.11.0+cu130",
        "13.0",
        requires="Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.2\nRequires-Dist: nvidia-cudnn-cu13==9.19.0.56\n",
    )
    (site / "cuda_toolkit-13.0.2.dist-info").mkdir()
    (site / "cuda_toolkit-13.0.2.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: cuda-toolkit\nVersion: 13.0.2\n"
        'Requires-Dist: nvidia-cublas==13.1.0.3.*; extra == "cublas"\n'
    )
    assert _read(tmp_path).pins == {"cudnn": "9.19.0.56", "cublas": "13.1.0.3"}


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "build"),
    [
        ("2.13.0+cpu", None, None, "cpu"),
        ("2.4.0+rocm6.3", None, "6.3.42134", "rocm"),
        ("2.5.1", "12.4", None, "cuda"),
    ],
)
def test_the_build_is_what_version_py_says(
    tmp_path: Path, version: str, cuda: str | None, hip: str | None, build: str
) -> None:
    _install(tmp_path, version, cuda, hip)
    found = _read(tmp_path)
    assert (found.build, found.rocm) == (build, hip)


@pytest.mark.parametrize("version", ["2.9.1", "2.9.0a0+145a3a7bda.nv25.10", "2.99.0+cu128"])
def test_builds_of_others_have_no_known_arch_list(tmp_path: Path, version: str) -> None:
    """conda-forge, NVIDIA's images, a release after the table: each chooses its own GPU code."""
    _install(tmp_path, version)
    assert _read(tmp_path).arch_list is None


def test_nothing_installed_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / SITE).mkdir(parents=True)
    assert _read(tmp_path).installed is False


def test_an_empty_folder_named_torch_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / SITE / "torch").mkdir(parents=True)
    assert _read(tmp_path).installed is False


def test_metadata_without_the_package_is_installed_and_of_unknown_build(tmp_path: Path) -> None:
    site = _install(tmp_path)
    for file in ("__init__.py", "version.py"):
        (site / "torch" / file).unlink()
    found = _read(tmp_path)
    assert (found.installed, found.build, found.version) == (True, None, "2.9.1+cu128")


def test_a_version_py_cut_short_is_survived(tmp_path: Path) -> None:
    site = _install(tmp_path)
    (site / "torch/version.py").write_text("__version__ = '2.9.")
    found = _read(tmp_path)
    assert (found.installed, found.build, found.version) == (True, None, "2.9.1+cu128")


def test_a_torch_py_in_the_working_folder_shadows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "site/torch").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text("")
    (tmp_path / "site/torch/version.py").write_text(VERSION.format(version="2.9.1", cuda="12.8", hip=None))
    monkeypatch.chdir(tmp_path)
    found = torch.read(System(environ={"PYTHONPATH": str(tmp_path / "site"), "PATH": os.defpath}))
    assert found.shadowed_by == str(tmp_path / "torch.py")


def test_a_plain_folder_named_torch_in_the_working_folder_does_not_shadow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of checkpoints or a docs folder: a regular package further on wins over it."""
    (tmp_path / "torch").mkdir()
    monkeypatch.chdir(tmp_path)
    assert torch.read(System(environ={"PYTHONSTUB": "x"})).shadowed_by is None


def test_python_on_path_of_the_same_environment_is_told_as_the_same(tmp_path: Path) -> None:
    venv = Path(torch.read(System()).python or "").parent
    found = torch.read(System(environ={**os.environ, "PATH": str(venv)}))
    assert found.path_python in {found.python, None}


def test_another_python_on_path_is_named_and_a_wrapper_script_is_not(tmp_path: Path) -> None:
    for name, text in (("real", "\x7fELF"), ("shim", "#!/bin/sh\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python").write_text(text)
        (tmp_path / name / "python").chmod(0o755)
    other = torch.read(System(environ={**os.environ, "PATH": str(tmp_path / "real")}))
    shim = torch.read(System(environ={**os.environ, "PATH": str(tmp_path / "shim")}))
    assert (other.path_python, shim.path_python) == (str(tmp_path / "real/python"), None)


def test_a_conda_package_of_old_is_known_by_its_egg_info(tmp_path: Path) -> None:
    (tmp_path / SITE / "torch-1.10.2-py3.12.egg-info").mkdir(parents=True)
    found = _read(tmp_path)
    assert (found.installed, found.version, found.python_tags) == (True, "1.10.2", ())
