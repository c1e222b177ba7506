"""CUDA libraries that wheels and conda packages bring: real folders with RECORD."""

import os
import struct
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


def _elf(size: int, table: int) -> bytes:
    """A header whose section table begins at `table`: two entries of 64 bytes."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, table)
    struct.pack_into("<HH", header, 0x3A, 64, 2)
    return bytes(header).ljust(size, b"\x00")


def test_a_wheels_library_and_cuda_come_from_its_name_or_its_folder(tmp_path: Path) -> None:
    _wheel(tmp_path, "nvidia_cudnn_cu12", "9.10.2.21", {"nvidia/cudnn/lib/libcudnn.so.9": 5})
    _wheel(tmp_path, "nvidia_cublas", "13.1.0.3", {"nvidia/cu13/lib/libcublas.so.13": 5, "nvidia/cu13/include/a.h": 3})
    _wheel(tmp_path, "nvidia_cusparse", "12.6.2.49", {"nvidia/cu13/lib/libcusparse.so.12": 5})
    _wheel(tmp_path, "nvidia_cuda_runtime_cu12", "12.8.90", {"nvidia/cuda_runtime/lib/libcudart.so.12": 5})
    _wheel(tmp_path, "nvidia_ml_py", "13.580.82", {"pynvml.py": 5})
    _wheel(tmp_path, "nvidia_dali_cuda120", "1.50.0", {"nvidia/dali/libdali.so": 5})
    wheels = _read(tmp_path).wheels or ()
    assert [(wheel.package, wheel.library, wheel.cuda_major) for wheel in wheels] == [
        ("nvidia-cublas", "cublas", 13),
        ("nvidia-cuda-runtime-cu12", "cudart", 12),
        ("nvidia-cudnn-cu12", "cudnn", 12),
        ("nvidia-cusparse", "cusparse", 13),
    ]
    assert wheels[0].files == ("nvidia/cu13/lib/libcublas.so.13",)
    assert wheels[0].folder == ENTRY


def test_libraries_inside_torchs_own_wheel_are_named_as_torchs(tmp_path: Path) -> None:
    files = {"torch/lib/libcudnn.so.8": 5, "torch/lib/libcudart-d0da41ae.so.11.0": 5, "torch/lib/libtorch_cpu.so": 5}
    _wheel(tmp_path, "torch", "2.0.1+cu118", files)
    (bundled,) = _read(tmp_path).wheels or ()
    assert (bundled.package, bundled.library, bundled.files) == ("torch", "cudnn", ("torch/lib/libcudnn.so.8",))


def test_a_file_cut_off_or_missing_is_damaged_and_a_whole_one_is_not(tmp_path: Path) -> None:
    lib = "nvidia/cudnn/lib/libcudnn"
    site = _wheel(tmp_path, "nvidia_cudnn_cu12", "9.10.2.21", {f"{lib}{part}.so.9": 4096 for part in "abc"})
    (site / f"{lib}a.so.9").write_bytes(_elf(1000, table=3968))
    (site / f"{lib}b.so.9").unlink()
    damaged = _read(tmp_path).damaged
    assert [(file.path, file.seen, file.wanted, file.whole) for file in damaged or ()] == [
        (f"{lib}a.so.9", "1000 bytes", "4096 bytes", False),
        (f"{lib}b.so.9", "missing", "4096 bytes", None),
    ]


def test_a_stripped_library_is_told_from_one_cut_off(tmp_path: Path) -> None:
    site = _wheel(tmp_path, "torch", "2.9.1", {"torch/lib/libtorch_cuda.so": 4096})
    (site / "torch/lib/libtorch_cuda.so").write_bytes(_elf(3000, table=2872))
    (file,) = _read(tmp_path).damaged or ()
    assert file.whole is True


def test_conda_changes_files_on_purpose(tmp_path: Path) -> None:
    site = _wheel(tmp_path, "torch", "2.9.1", {"torch/lib/libtorch_cuda.so": 10}, installer="conda")
    (site / "torch/lib/libtorch_cuda.so").write_bytes(b"x")
    assert _read(tmp_path).damaged == ()


def test_a_wheel_without_record_is_not_damaged(tmp_path: Path) -> None:
    site = _wheel(tmp_path, "nvidia_nccl_cu12", "2.27.5", {"nvidia/nccl/lib/libnccl.so.2": 10})
    (site / "nvidia_nccl_cu12-2.27.5.dist-info/RECORD").unlink()
    found = _read(tmp_path)
    assert found.damaged == ()
    assert (found.wheels or ())[0].files == ()


def test_of_two_wheels_of_one_file_the_overwritten_one_is_told_and_none_is_damaged(tmp_path: Path) -> None:
    path = "nvidia/nccl/lib/libnccl.so.2"
    _wheel(tmp_path, "nvidia_nccl_cu11", "2.14.3", {path: 100})
    _wheel(tmp_path, "nvidia_nccl_cu12", "2.27.3", {path: 200})
    found = _read(tmp_path)
    assert [wheel.overwritten for wheel in found.wheels or ()] == [(path,), ()]
    assert found.damaged == ()


def test_a_leftover_of_an_upgrade_gives_way_to_the_wheel_written_last(tmp_path: Path) -> None:
    site = _wheel(tmp_path, "nvidia_cudnn_cu12", "8.9.2.26", {"nvidia/cudnn/lib/libcudnn.so.8": 5})
    os.utime(site / "nvidia_cudnn_cu12-8.9.2.26.dist-info", (1, 1))
    (site / "nvidia/cudnn/lib/libcudnn.so.8").unlink()
    _wheel(tmp_path, "nvidia_cudnn_cu12", "9.1.0.70", {"nvidia/cudnn/lib/libcudnn.so.9": 5})
    found = _read(tmp_path)
    assert [wheel.version for wheel in found.wheels or ()] == ["9.1.0.70"]
    assert found.damaged == ()


def test_conda_packages_are_read_from_their_file_names(tmp_path: Path) -> None:
    meta = tmp_path / "opt/venv/conda-meta"
    meta.mkdir(parents=True)
    for name in ("cudnn-9.10.1.4-h7646684_0.json", "libcublas-12.9.1.4-h9ab20c4_0.json", "numpy-2.3.0-py312_0.json"):
        (meta / name).write_text("{}")
    wheels = _read(tmp_path).wheels or ()
    assert [(wheel.package, wheel.library, wheel.version, wheel.conda) for wheel in wheels] == [
        ("cudnn", "cudnn", "9.10.1.4", True),
        ("libcublas", "cublas", "12.9.1.4", True),
    ]
