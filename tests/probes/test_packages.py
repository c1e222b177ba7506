"""Packages around torch: metadata from real folders, and compiled stubs that are really loaded."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudoctor.facts.packages import Packages
from gpudoctor.probes import extensions, packages
from gpudoctor.probes.interpreter import Interpreter
from gpudoctor.probes.system import System

SITE = "opt/venv/lib/python3.12/site-packages"
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or shutil.which("gcc") is None or os.name != "posix",
    reason="needs torch and a compiler",
)


def _distribution(site: Path, name: str, version: str, *lines: str) -> Path:
    about = site / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "\n".join(("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines))
    )
    return about


def _compile(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


def _recorded(root: Path, **environ: str) -> Packages:
    return packages.read(System(root=root, python="/opt/venv/bin/python", environ=environ))


def _live(site: Path, quick: bool = False) -> Packages:
    return packages.read(System(environ={**os.environ, "PYTHONPATH": str(site)}, quick=quick))


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


def test_nothing_is_run_where_no_package_holds_code_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "load", _never)
    _distribution(tmp_path, "triton", "3.5.1")
    _distribution(tmp_path, "torchaudio", "2.12.0")  # its files are not there
    _live(tmp_path)


def test_quick_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "load", _never)
    _distribution(tmp_path, "flash_attn", "2.8.3")
    (tmp_path / "flash_attn_2_cuda.so").write_bytes(b"")
    found = next(package for package in _live(tmp_path, quick=True).installed if package.name == "flash-attn")
    assert found.compiled
    assert found.imported is None


def _never(*_: object) -> None:
    raise AssertionError("a process was started")


def test_files_for_another_python_are_left_out(tmp_path: Path) -> None:
    for name in ("flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so", "flash_attn_2_cuda.abi3.so"):
        (tmp_path / name).write_bytes(b"")
    interpreter = Interpreter(executable="python", version="3.12.3", path=())
    found = extensions.compiled(extensions.EXTENSIONS["flash-attn"], tmp_path, interpreter, "12.8")
    assert [Path(path).name for path in found] == ["flash_attn_2_cuda.abi3.so"]


@with_torch
@pytest.mark.slow
def test_stubs_are_loaded_beside_torch_and_each_tells_its_own_end(tmp_path: Path) -> None:
    """One loads, one misses a symbol of torch, one crashes, one holds no compiled code."""
    _distribution(tmp_path, "mamba_ssm", "2.2.4")
    _compile(tmp_path / "selective_scan_cuda.so", "int fine(void) { return 1; }")
    _distribution(tmp_path, "flash_attn", "2.8.3")
    _compile(
        tmp_path / "flash_attn_2_cuda.so",
        "extern int _ZN3c104cuda9SetDeviceEi(int); int use(void) { return _ZN3c104cuda9SetDeviceEi(0); }",
    )
    _distribution(tmp_path, "xformers", "0.0.33")
    _compile(
        tmp_path / "xformers/_C.so",
        "#include <signal.h>\n__attribute__((constructor)) static void die(void) { raise(SIGSEGV); }",
    )
    _distribution(tmp_path, "causal_conv1d", "1.5.0")
    (tmp_path / "causal_conv1d").mkdir()
    (tmp_path / "causal_conv1d/__init__.py").write_text("import causal_conv1d_cuda\n")
    found = _live(tmp_path)
    assert found.unread == {}
    mamba, flash = found.get("mamba-ssm"), found.get("flash-attn")
    xformers, causal = found.get("xformers"), found.get("causal-conv1d")
    assert mamba is not None
    assert mamba.imported is True
    assert flash is not None
    assert flash.imported is False
    assert "undefined symbol: _ZN3c104cuda9SetDeviceEi" in (flash.import_error or "")
    assert xformers is not None
    assert (xformers.signal, xformers.imported) == (11, False)
    assert causal is not None
    assert causal.import_error == "ModuleNotFoundError: No module named 'causal_conv1d_cuda'"


@with_torch
def test_a_package_that_loads_costs_no_import_of_torch(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    _broken_torch(tmp_path)
    (tmp_path / "torch/lib").symlink_to(Path(spec.origin).parent / "lib")
    _distribution(tmp_path, "mamba_ssm", "2.2.4")
    _compile(tmp_path / "selective_scan_cuda.so", "int fine(void) { return 1; }")
    found = _live(tmp_path).get("mamba-ssm")
    assert found is not None
    assert found.imported is True


def _broken_torch(site: Path) -> None:
    _distribution(site, "torch", "2.12.0")
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("raise ImportError('libtorch_cuda.so: undefined symbol: ncclMemFree')\n")


@with_torch
def test_a_torch_that_does_not_import_is_said_and_blames_no_package(tmp_path: Path) -> None:
    _distribution(tmp_path, "torch", "2.12.0")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(
        "raise ImportError('libtorch_cuda.so: undefined symbol: ncclMemFree')\n"
    )
    _distribution(tmp_path, "mamba_ssm", "2.2.4")
    _compile(tmp_path / "selective_scan_cuda.so", "int fine(void) { return 1; }")
    found = _live(tmp_path)
    package = found.get("mamba-ssm")
    assert package is not None
    assert package.imported is None
    assert "ncclMemFree" in found.unread["extensions"]
