"""Toolkits and search paths in real folders."""

import json
from pathlib import Path

from gpudoctor.facts.libraries import Libraries
from gpudoctor.probes import libraries
from gpudoctor.probes.system import System

PYTHON = "/opt/venv/bin/python"
ENTRY = "/opt/venv/lib/python3.12/site-packages"


def _read(root: Path, **environ: str) -> Libraries:
    (root / ENTRY[1:]).mkdir(parents=True, exist_ok=True)
    return libraries.read(System(root=root, python=PYTHON, environ={"PATH": "/usr/bin", **environ}))


def _wheel(root: Path, name: str, version: str, files: dict[str, int], installer: str = "pip") -> Path:
    """RECORD says `files`; on disk they are made with these sizes where they are not there yet."""
    site = root / ENTRY[1:]
    about = site / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "INSTALLER").write_text(installer + "\n")
    (about / "RECORD").write_text("".join(f'"{path}",sha256=abc,{size}\n' for path, size in files.items()))
    for path, size in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(b"\x00" * size)
    return site


def test_libraries_on_the_search_path_have_the_version_of_the_file_they_lead_to(tmp_path: Path) -> None:
    folder = tmp_path / "usr/local/cuda-12.4/lib64"
    folder.mkdir(parents=True)
    for name in ("libcublas.so.12.4.5.8", "libcudnn_ops.so.9.1.0", "libfoo.so.1"):
        (folder / name).write_bytes(b"")
    (folder / "libcublas.so.12").symlink_to("libcublas.so.12.4.5.8")
    (folder / "libcublas.so").symlink_to("libcublas.so.12")
    (folder / "libcudnn_ops.so.9").symlink_to("libcudnn_ops.so.9.1.0")
    (folder / "libnccl.so.2").symlink_to("libnccl.so.2.20.5")  # leads nowhere
    found = _read(tmp_path, LD_LIBRARY_PATH="/nowhere:/usr/local/cuda-12.4/lib64:", LD_PRELOAD="/opt/a.so /opt/b.so")
    assert [(library.library, library.version, library.via) for library in found.system or ()] == [
        ("cublas", "12.4.5.8", "LD_LIBRARY_PATH"),
        ("cudnn", "9.1.0", "LD_LIBRARY_PATH"),
    ]
    assert found.ld_library_path == ("/nowhere", "/usr/local/cuda-12.4/lib64")
    assert found.ld_preload == ("/opt/a.so", "/opt/b.so")


def test_the_wheels_own_folder_on_the_search_path_is_no_other_copy(tmp_path: Path) -> None:
    _wheel(tmp_path, "nvidia_cudnn_cu12", "9.10.2.21", {"nvidia/cudnn/lib/libcudnn.so.9": 5})
    assert _read(tmp_path, LD_LIBRARY_PATH=f"{ENTRY}/nvidia/cudnn/lib").system == ()


def test_the_toolkit_is_the_one_torch_would_build_with(tmp_path: Path) -> None:
    assert _read(tmp_path).toolkits == ()
    for version in ("12.4", "13.0"):
        home = tmp_path / f"usr/local/cuda-{version}"
        (home / "bin").mkdir(parents=True)
        (home / "bin/nvcc").write_text("#!/bin/sh\n")
        (home / "bin/nvcc").chmod(0o755)
        (home / "version.json").write_text(json.dumps({"cuda": {"name": "CUDA SDK", "version": f"{version}.1"}}))
    both = ("/usr/local/cuda-12.4", "/usr/local/cuda-13.0")
    by_path = _read(tmp_path, PATH="/usr/local/cuda-12.4/bin:/usr/bin")
    assert (by_path.toolkits, by_path.nvcc_path, by_path.nvcc_version) == (both, f"{both[0]}/bin/nvcc", "12.4")
    by_home = _read(tmp_path, PATH="/usr/local/cuda-12.4/bin", CUDA_HOME="/usr/local/cuda-13.0")
    assert (by_home.toolkits, by_home.nvcc_version, by_home.cuda_home_exists) == (both[::-1], "13.0", True)
    nowhere = _read(tmp_path, CUDA_HOME="/opt/cuda")
    assert (nowhere.cuda_home, nowhere.cuda_home_exists) == ("/opt/cuda", False)


def test_the_search_path_is_read_even_where_there_is_no_interpreter(tmp_path: Path) -> None:
    found = libraries.read(System(root=tmp_path, python="/nowhere/bin/python", environ={"LD_LIBRARY_PATH": "/a"}))
    assert found.wheels is None
    assert found.ld_library_path == ("/a",)
    assert "not found" in found.unread["wheels"]


def test_this_machines_own_torch_is_whole() -> None:
    assert libraries.read(System()).damaged == ()
