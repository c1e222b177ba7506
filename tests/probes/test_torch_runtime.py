"""Torch by import. The stubs stand before any real torch on PYTHONPATH."""

import ast
import os
import signal
import sys
from pathlib import Path

import pytest

from gpudoctor.facts.torch import LoadedVersion, TorchRuntime
from gpudoctor.probes import torch_child, torch_runtime
from gpudoctor.probes.system import NotRead, System

FAKE = """
import types
__version__ = "2.9.1+cu128"
version = types.SimpleNamespace(cuda="12.8", hip=None)
class Cuda(types.SimpleNamespace):
    def is_available(self):
        return {available}
    def device_count(self):
        return 2 if {available} else 0
    def init(self):
        raise RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted")
    def get_device_properties(self, index):
        return types.SimpleNamespace(name="NVIDIA Fake", major=8, minor=9)
    def is_bf16_supported(self, including_emulation=True):
        return not including_emulation
cuda = Cuda(nccl=types.SimpleNamespace(version=lambda: (2, 27, 5)))
_C = types.SimpleNamespace(
    _cuda_getArchFlags=lambda: "sm_80 sm_90",
    _cuda_getCompiledVersion=lambda: 12080,
    _cudnn=types.SimpleNamespace(getCompileVersion=lambda: (9, 10, 2)),
)
def get_num_threads():
    return 4
def get_float32_matmul_precision():
    raise RuntimeError("mix of the legacy and new APIs")
"""


def _read(folder: Path, torch: str, deadline_s: float = 20.0) -> TorchRuntime:
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(torch)
    return torch_runtime.read(System(environ={**os.environ, "PYTHONPATH": str(folder)}), deadline_s=deadline_s)


def test_the_child_is_python_3_9() -> None:
    ast.parse(torch_runtime.SCRIPT.read_text(), feature_version=(3, 9))


@pytest.mark.slow
def test_the_real_torch_is_read_to_the_end() -> None:
    found = torch_runtime.read(System())
    assert (found.stage, found.error, found.unread) == ("done", None, {})
    assert found.version is not None
    assert found.precision is not None
    assert found.precision.float32_matmul == "highest"
    assert found.cxx11_abi is not None
    assert found.import_s is not None
    assert found.import_s > 0


def test_a_loader_error_keeps_its_words(tmp_path: Path) -> None:
    words = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    found = _read(tmp_path, f"raise ImportError({words!r})")
    assert (found.stage, found.error, found.signal) == ("import", f"ImportError: {words}", None)
    assert "Traceback" in (found.traceback or "")


def test_a_death_by_signal_names_signal_and_stage(tmp_path: Path) -> None:
    found = _read(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert (found.stage, found.signal, found.error) == ("import", signal.SIGSEGV, None)
    assert "__init__.py" in (found.traceback or "")


def test_the_last_words_before_an_abort_are_kept(tmp_path: Path) -> None:
    found = _read(
        tmp_path, "import os, sys\nprint('double free or corruption', file=sys.stderr, flush=True)\nos.abort()"
    )
    assert (found.signal, found.error) == (signal.SIGABRT, "double free or corruption")


def test_a_hang_is_ended_at_the_deadline_and_its_place_is_known(tmp_path: Path) -> None:
    found = _read(tmp_path, "import os\nreading, writing = os.pipe()\nos.read(reading, 1)", deadline_s=2.0)
    assert (found.stage, found.timed_out, found.busy) == ("import", True, False)
    assert "torch/__init__.py" in (found.traceback or "")


def test_a_slow_import_is_told_from_a_hung_one(tmp_path: Path) -> None:
    assert _read(tmp_path, "while True: pass", deadline_s=2.0).busy is True


def test_sys_exit_in_the_import_is_an_error(tmp_path: Path) -> None:
    assert _read(tmp_path, "import sys\nsys.exit(3)").error == "SystemExit: 3"


def test_an_end_without_a_word_is_an_error_too(tmp_path: Path) -> None:
    found = _read(tmp_path, "import os\nos._exit(7)")
    assert (found.stage, found.error) == ("import", "the process ended with exit code 7")


def test_garbage_on_standard_output_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('@gpudoctor {half')")
    found = _read(tmp_path, "import os\nos.write(1, b'x' * 100000)\nprint('@gpudoctor ')\nraise ImportError('no')")
    assert found.error == "ImportError: no"


def test_a_torch_that_is_something_else_fails_at_its_version(tmp_path: Path) -> None:
    found = _read(tmp_path, "")
    assert found.stage == "versions"
    assert "has no attribute '__version__'" in (found.error or "")
    assert found.path == str(tmp_path / "torch/__init__.py")


def test_cuda_that_does_not_start_gives_its_number(tmp_path: Path) -> None:
    found = _read(tmp_path, FAKE.format(available=False))
    assert (found.stage, found.cuda_available, found.cuda_error_code) == ("done", False, 804)
    assert "forward compatibility" in (found.cuda_error or "")
    assert found.arch_list == ("sm_80", "sm_90")


def test_each_unreadable_part_costs_itself_alone(tmp_path: Path) -> None:
    found = _read(tmp_path, FAKE.format(available=False))
    assert found.torch_threads == 4
    assert found.precision is not None
    assert found.precision.float32_matmul is None
    assert found.unread["float32_matmul"].startswith("RuntimeError: mix")


def test_what_was_told_before_an_error_stays(tmp_path: Path) -> None:
    found = _read(tmp_path, FAKE.format(available=True))
    assert found.stage == "smoke"
    assert "Generator" in (found.error or "")
    assert found.capabilities == ("8.9", "8.9")
    assert found.precision is not None
    assert found.precision.bf16_native is True
    assert found.libraries == (
        LoadedVersion(name="cudnn", compiled="9.10.2"),
        LoadedVersion(name="nccl", compiled="2.27.5"),
        LoadedVersion(name="cudart", compiled="12.8"),
    )


def test_odd_types_cost_their_field_alone(tmp_path: Path) -> None:
    odd = FAKE.format(available=False) + "\nget_num_threads = lambda: 'many'\n"
    found = _read(tmp_path, odd)
    assert (found.stage, found.torch_threads) == ("done", None)
    assert "torch_threads" in found.unread


def test_a_torch_py_of_the_working_folder_is_found_and_a_json_py_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('the one in the working folder')")
    (tmp_path / "json.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert torch_runtime.read(System()).error == "ImportError: the one in the working folder"


def test_the_quick_level_and_a_recorded_machine_import_nothing(tmp_path: Path) -> None:
    for system in (System(quick=True), System(root=tmp_path)):
        with pytest.raises(NotRead):
            torch_runtime.read(system)


def test_an_interpreter_that_cannot_run_the_script_is_said() -> None:
    with pytest.raises(NotRead, match="did not run the script"):
        torch_runtime.read(System(python="/bin/true"))


def test_libraries_are_known_by_their_file_names() -> None:
    names = {
        "/x/libcudnn.so.9": "cudnn",
        "/x/libcudnn_graph.so.9": "cudnn_graph",
        "/x/libcudart-d0da41ae.so.11.0": "cudart",
        "/usr/lib/libcuda.so.580.95.05": "cuda",
        "/x/libnvJitLink.so.12": "nvJitLink",
        "/x/libnccl.so.2": "nccl",
        "/x/libtorch_cuda.so": None,
        "/x/libc10_cuda.so": None,
        "/usr/lib/libcudadebugger.so.1": None,
    }
    matches = {path: torch_child.CUDA_LIBRARY.search(path) for path in names}
    assert {path: match and match[1] for path, match in matches.items()} == names


def test_versions_are_written_as_people_write_them() -> None:
    assert [torch_child.dotted(number) for number in (8907, 91002, 22705, 2708)] == [
        "8.9.7",
        "9.10.2",
        "2.27.5",
        "2.7.8",
    ]
    assert torch_child.thousands(12080) == "12.8"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_a_mapped_library_is_not_loaded_a_second_time() -> None:
    with pytest.raises(OSError, match="nowhere"):
        torch_child.already_loaded("/nowhere/libcudnn.so.9")
