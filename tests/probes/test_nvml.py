"""NVML's session: what is refused, missing or broken costs one answer, and says why where there should be one."""

from functools import partial
from pathlib import Path

import pynvml
import pytest

from gpudoctor.probes.nvml import BoardLost, Nvml, ResetNeeded, started, sysfs_name
from gpudoctor.probes.system import NotRead, System
from tests.probes.nvml_machines import LOST, NOT_ALLOWED, UNKNOWN, UNSUPPORTED, Board, Machine, Refuses


def test_what_the_hardware_lacks_is_no_answer_and_no_failure() -> None:
    nvml = Nvml(Machine())
    for code in (UNSUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA):
        assert nvml.ask("nvmlDeviceGetName", Board(Name=Refuses(code))) is None
    assert nvml.ask("nvmlDeviceGetNameThatNoBindingHas", Board()) is None
    assert nvml.failed == {}


def test_what_needs_root_or_breaks_is_told() -> None:
    nvml = Nvml(Machine())
    nvml.ask("nvmlDeviceGetSerial", Board(Serial=Refuses(NOT_ALLOWED)))
    nvml.ask("nvmlDeviceGetName", Board(Name=Refuses(UNKNOWN)))
    assert nvml.failed == {"nvmlDeviceGetSerial": "needs root", "nvmlDeviceGetName": "Unknown Error"}


def test_a_lost_board_is_an_exception_and_so_is_one_that_waits_for_a_reset() -> None:
    nvml = Nvml(Machine())
    with pytest.raises(BoardLost, match="GPU is lost"):
        nvml.ask("nvmlDeviceGetName", Board(Name=Refuses(LOST)))
    with pytest.raises(ResetNeeded):
        nvml.ask("nvmlDeviceGetName", Board(Name=Refuses(pynvml.NVML_ERROR_RESET_REQUIRED)))


def test_a_call_that_this_driver_has_in_an_older_version_only_falls_back() -> None:
    def too_new() -> None:
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    board = Board(ComputeRunningProcesses=too_new, ComputeRunningProcesses_v2=["one"])
    calls = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
    nvml = Nvml(Machine())
    assert nvml.first(calls, board) == ["one"]
    assert nvml.failed == {}


def test_a_session_says_why_it_does_not_start() -> None:
    for code, words in (
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver library"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "NVML does not start: Driver Not Loaded"),
        (UNKNOWN, "NVML does not start: Unknown Error"),
    ):
        with pytest.raises(NotRead, match=words), started(System(), partial(Machine, start=code)):
            pass


def test_a_session_is_ended_and_a_binding_that_is_broken_is_told() -> None:
    machine = Machine()
    with started(System(), lambda: machine):
        pass
    assert machine.stopped

    def broken() -> None:
        raise ImportError("no module named pynvml")

    with pytest.raises(NotRead, match="nvidia-ml-py does not import"), started(System(), broken):
        pass


def test_a_recorded_machine_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="this machine alone"), started(System(root=tmp_path)):
        pass


def test_bus_ids_as_sysfs_writes_them() -> None:
    assert sysfs_name("00000000:0F:00.0") == "0000:0f:00.0"
    assert sysfs_name("00010000:C1:00.0") == "10000:c1:00.0"
    assert Nvml(Machine()).slot(Board()) is None
