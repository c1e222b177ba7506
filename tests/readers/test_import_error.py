"""What the dynamic loader says, and whose fault it is."""

import pytest

from gpudoctor.facts.torch import LoadedVersion
from gpudoctor.readers import import_error
from gpudoctor.snapshot import Snapshot

SITE = "/opt/venv/lib/python3.12/site-packages"


def _read(text: str) -> Snapshot:
    snapshot = import_error.read(text)
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize(
    ("path", "package"),
    [
        (f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "flash-attn"),
        (f"{SITE}/flash_attn-2.5.6-py3.12-linux-x86_64.egg/flash_attn_2_cuda.so", "flash-attn"),
        (f"{SITE}/xformers/_C.so", "xformers"),
        (f"{SITE}/torchvision/image.so", "torchvision"),
        ("/root/.cache/torch_extensions/py312_cu128/cpu_adam/cpu_adam.so", "deepspeed"),
    ],
)
def test_a_symbol_that_an_extension_lacks_goes_to_its_package(path: str, package: str) -> None:
    snapshot = _read(f"ImportError: {path}: undefined symbol: _ZN3c105ErrorC2E")
    assert snapshot.packages is not None
    (found,) = snapshot.packages.installed
    assert (found.name, found.imported) == (package, False)
    assert found.import_error == f"ImportError: {path}: undefined symbol: _ZN3c105ErrorC2E"
    assert snapshot.torch_runtime is None


@pytest.mark.parametrize(
    "line",
    [
        f"ImportError: {SITE}/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
        f"ImportError: {SITE}/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_8",
        f"ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by {SITE}/torch/lib/x.so)",
    ],
)
def test_one_that_torchs_libraries_lack_stops_the_import_of_torch(line: str) -> None:
    runtime = _read(line).torch_runtime
    assert runtime is not None
    assert runtime.stage == "import"
    assert (runtime.error or "").startswith("ImportError: ")


def test_a_missing_library_goes_to_the_code_that_asked_for_it() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\n'
        f'  File "{SITE}/torchaudio/_extension/utils.py", line 63, in _load_lib\n'
        '  File "/usr/lib/python3.12/ctypes/__init__.py", line 379, in __init__\n'
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory\n"
    )
    packages = _read(traceback).packages
    assert packages is not None
    assert [package.name for package in packages.installed] == ["torchaudio"]
    assert import_error.read(traceback.replace("torchaudio", "torch")) is not None


def test_ldd_shows_which_copy_the_loader_took() -> None:
    text = (
        "$ ldd libcusparse.so.12\n\tlibnvJitLink.so.12 => /usr/local/cuda/lib64/libnvJitLink.so.12 (0x00007)\n"
        "\tlibc.so.6 => /lib/libc.so.6 (0x00007)\n"
    )
    runtime = _read(text).torch_runtime
    assert runtime is not None
    path = "/usr/local/cuda/lib64/libnvJitLink.so.12"
    assert (runtime.stage, runtime.libraries) == (None, (LoadedVersion(name="nvjitlink", path=path),))


def test_a_missing_library_of_a_program_outside_python_is_nobodys() -> None:
    assert import_error.read("./a.out: error while loading: libfoo.so.1: cannot open shared object file") is None


def test_a_symbol_of_another_version_is_told_with_its_library() -> None:
    file = f"{SITE}/nvidia/cublas/lib/libcublas.so.12"
    line = f"OSError: {file}: symbol cublasLtX, version libcublasLt.so.12 not defined in file libcublasLt.so.12 with"
    runtime = _read(line).torch_runtime
    assert runtime is not None
    assert "symbol cublasLtX" in (runtime.error or "")
