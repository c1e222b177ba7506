"""GPU boards as NVML tells of them, on machines of several kinds."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.probes import gpu
from gpudoctor.probes.nvml import Nvml
from gpudoctor.probes.system import System
from tests.probes.conftest import Record
from tests.probes.nvml_machines import (
    LOST,
    MIB,
    NOT_ALLOWED,
    Board,
    Machine,
    Refuses,
    geforce,
    h100,
    memory,
    mig,
    process,
    wsl,
)


@pytest.fixture
def bare(tmp_path: Path) -> System:
    """No file at all, so that NVML alone answers."""
    return System(root=tmp_path, environ={})


def _read(machine: Machine, system: System) -> Gpus:
    return gpu.boards(Nvml(machine), system, wait=lambda _: None)


def _one(board: Board | Refuses, system: System) -> Gpu:
    return _read(Machine(board), system).boards[0]


def test_eight_boards_of_a_healthy_node(bare: System) -> None:
    gpus = _read(Machine(*map(h100, range(8))), bare)
    assert [board.index for board in gpus.boards] == list(range(8))
    assert gpus.unread == {}
    first = gpus.boards[0]
    assert (first.name, first.compute_capability, first.pci_bus_id) == (
        "NVIDIA H100 80GB HBM3",
        "9.0",
        "00000000:10:00.0",
    )
    assert (first.memory_used_bytes, first.memory_reserved_bytes) == (MIB, 610 * MIB)
    assert (first.power_w, first.power_limit_w) == (69.9, 700.0)
    assert (first.throttle_reasons, first.performance_state) == (("gpu_idle",), 0)
    assert (first.ecc_mode, first.ecc_uncorrected_volatile, first.row_remap_pending) == (True, 0, False)
    assert (first.fabric_state, first.fabric_status, first.fabric_health) == ("completed", "success", "healthy")
    assert (first.recovery_action, first.mig_mode, first.inforom_corrupt) == ("none", False, False)
    assert first.processes == ()
    assert first.cpu_affinity == tuple(range(8))
    assert not any(board.lost or board.error for board in gpus.boards)


def test_the_number_of_calls_grows_with_the_boards_alone(bare: System) -> None:
    one, eight = Machine(h100()), Machine(*map(h100, range(8)))
    _read(one, bare)
    _read(eight, bare)
    assert len(eight.asked) <= 8 * len(one.asked)
    assert len(one.asked) < 80


def test_a_board_off_the_bus_costs_itself_alone(bare: System) -> None:
    gone = h100(1).but(UtilizationRates=Refuses(LOST))
    gpus = _read(Machine(h100(0), gone, Refuses(LOST), Refuses(999), h100(4)), bare)
    assert [board.lost for board in gpus.boards] == [False, True, True, True, False]
    assert gpus.boards[1].name == "NVIDIA H100 80GB HBM3"
    assert gpus.boards[2].error == "GPU is lost"
    assert gpus.boards[3].error == "Unknown Error"
    assert gpus.boards[4].temperature_c == 31


def test_a_board_that_waits_for_a_reset_is_not_lost(bare: System) -> None:
    board = _one(Refuses(16), bare)
    assert (board.lost, board.recovery_action) == (False, "gpu_reset")


def test_boards_kept_from_this_process_are_counted_and_not_listed(bare: System) -> None:
    gpus = _read(Machine(h100(0), Refuses(NOT_ALLOWED), h100(2), Refuses(17)), bare)
    assert [board.index for board in gpus.boards] == [0, 2]
    assert gpus.unread == {"boards": "2 more, which this process may not use"}


def test_a_geforce_has_no_answer_where_it_has_no_part(bare: System) -> None:
    gpus = _read(Machine(geforce()), bare)
    board = gpus.boards[0]
    assert gpus.unread == {}
    assert board.name == "NVIDIA GeForce RTX 4090"
    assert (board.ecc_mode, board.mig_mode, board.row_remap_pending, board.fabric_state) == (None, None, None, None)
    assert board.throttle_reasons == ("gpu_idle",)
    # What computes and draws is a desktop program, once.
    assert [(item.pid, item.kind) for item in board.processes or ()] == [(1000, "graphics"), (2000, "graphics")]


def test_wsl_tells_no_memory_by_process(bare: System) -> None:
    board = _one(wsl(), bare)
    assert [item.memory_bytes for item in board.processes or ()] == [None]
    assert (board.utilization_ratio, board.performance_state) == (0.12, None)


def test_mig_lists_its_instances_and_says_what_needs_root(bare: System) -> None:
    gpus = _read(Machine(mig("MIG-a", "MIG-b")), bare)
    board = gpus.boards[0]
    assert board.mig_mode is True
    assert [instance.uuid for instance in board.mig_instances] == ["MIG-a", "MIG-b"]
    assert board.mig_instances[0].memory_total_bytes == 19968 * MIB
    assert board.processes is None
    assert gpus.unread == {"processes": "needs root"}


def test_mig_instances_that_may_not_be_listed_are_not_none(bare: System) -> None:
    board = mig().but(MigDeviceHandleByIndex=Refuses(NOT_ALLOWED))
    assert "mig_instances" in _read(Machine(board), bare).unread


def test_the_first_memory_call_tells_nothing_of_the_drivers_part(bare: System) -> None:
    old = h100().but(MemoryInfo=lambda version=None: memory(81559, 1, 610)() if version is None else Refuses(13))
    board = _one(old, bare)
    assert (board.memory_used_bytes, board.memory_reserved_bytes) == (611 * MIB, None)


def test_memory_that_is_given_back_at_a_second_look_is_nobodys_no_more(bare: System) -> None:
    looks = iter((memory(81559, 540, 610), memory(81559, 540, 610), memory(81559, 1, 610)))
    leaving = h100().but(MemoryInfo=lambda version=None: next(looks)(version))
    assert _one(leaving, bare).memory_used_bytes == MIB
    waits: list[float] = []
    stuck = h100().but(MemoryInfo=memory(81559, 540, 610))
    found = gpu.boards(Nvml(Machine(stuck, h100(1))), bare, wait=waits.append)
    assert found.boards[0].memory_used_bytes == 540 * MIB
    assert sum(waits) < 1.0


def test_a_slowdown_of_a_moment_is_none(bare: System) -> None:
    looks = iter((0x8, 0x0))
    assert _one(h100().but(CurrentClocksEventReasons=lambda: next(looks)), bare).throttle_reasons == ()
    assert _one(h100().but(CurrentClocksEventReasons=0x48), bare).throttle_reasons == (
        "hw_slowdown",
        "hw_thermal_slowdown",
    )


def test_a_rate_of_replays_needs_a_time_to_watch(bare: System, monkeypatch: pytest.MonkeyPatch) -> None:
    for took_s, rate in ((0.01, None), (0.1, 50.0)):
        times, counts = iter((0.0, took_s)), iter((5, 5, 10))
        monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda times=times: next(times)))
        told = _one(h100().but(PcieReplayCounter=lambda counts=counts: next(counts)), bare)
        assert told.pcie_replays_per_s == rate


def test_place_and_slot_come_from_sysfs(record: Record) -> None:
    system = record({})
    port = system.path("/sys/devices/pci0000:0f/0000:0f:01.0")
    board = port / "0000:10:00.0"
    board.mkdir(parents=True)
    (port / "max_link_width").write_text("8\n")
    (board / "numa_node").write_text("1\n")
    (board / "local_cpulist").write_text("56-111,168-223\n")
    devices = system.path("/sys/bus/pci/devices")
    devices.mkdir(parents=True)
    (devices / "0000:10:00.0").symlink_to(os.path.relpath(board, devices))
    told = _one(h100(), system)
    assert (told.pcie_slot_width, told.numa_node) == (8, 1)
    assert told.cpu_affinity == (*range(56, 112), *range(168, 224))
    (board / "numa_node").write_text("-1\n")
    assert _one(h100(), system).numa_node is None


def test_a_machine_without_boards_has_none(bare: System) -> None:
    assert _read(Machine(), bare) == Gpus()


def test_processes_of_other_lists_are_listed_once(bare: System) -> None:
    board = h100().but(
        ComputeRunningProcesses=[process(10, 500)], MPSComputeRunningProcesses=[process(10, 500), process(11, 0)]
    )
    told = _one(board, bare).processes or ()
    assert [(item.pid, item.kind, item.memory_bytes) for item in told] == [
        (10, "compute", 500 * MIB),
        (11, "compute", 0),
    ]
