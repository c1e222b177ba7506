"""Compiled stubs that are really loaded beside torch."""

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


def _live(site: Path, quick: bool = False) -> Packages:
    return packages.read(System(environ={**os.environ, "PYTHONPATH": str(site)}, quick=quick))


def _never(*_: object) -> None:
    raise AssertionError("a process was started")


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
