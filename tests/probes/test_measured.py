"""The hardware made to work: for real on the CPU, and with a torch that dies, hangs or computes wrongly."""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.gpu import Gpu, GpuProcess
from gpudoctor.facts.measured import Measured
from gpudoctor.probes import measure_boards, measure_child, measure_worker, measured
from gpudoctor.probes.measure_worker import Worker
from gpudoctor.probes.nvml import Nvml
from gpudoctor.probes.system import NotRead, System
from tests.probes import nvml_machines as nvml

FAKE = """
import contextlib, faulthandler, os, signal, threading, types
set_grad_enabled = contextlib.nullcontext
cuda = types.SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
distributed = types.SimpleNamespace(is_available=lambda: False)
version = types.SimpleNamespace(hip=None)
def segfault(*a, **k):
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)
def killed(*a, **k):
    os.kill(os.getpid(), signal.SIGKILL)
def hangs(*a, **k):
    threading.Event().wait()
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    {fault}
"""
REAL = """
import sys
here = sys.path.index({folder!r})
del sys.path[here], sys.modules["torch"]
import torch
sys.path.insert(here, {folder!r})
right = torch.matmul
def matmul(a, b):
    product = right(a, b)
    product[3, 5] += 100.0
    return product
torch.matmul = matmul
"""


def _environ(folder: Path, torch: str) -> dict[str, str]:
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(torch)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(sys.executable, dict(os.environ)) as child:
        yield child


def test_the_child_is_python_3_9() -> None:
    ast.parse(measure_worker.SCRIPT.read_text(), feature_version=(3, 9))


@pytest.mark.slow
def test_the_cpu_multiplies_right_and_the_figures_are_told(worker: Worker) -> None:
    rows = worker.ask("gemm", [None], 60).facts["gemm"]
    assert [(row["format"], row["correct"]) for row in rows] == [("fp32", True), ("bf16", True)]
    assert all(row["tflops"] > 0 and "repeatable" not in row for row in rows)
    (copy,) = worker.ask("memory", [None], 60).facts["memory"]
    assert copy["gb_s"] > 0.1
    tried = worker.ask("features", [None], 60).facts["features"]
    assert {row["name"] for row in tried if row["ok"]} >= {"convolution", "attention math"}


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["file_descriptor", "file_system"])
def test_loader_workers_pass_large_batches(worker: Worker, sharing: str) -> None:
    (row,) = worker.ask("loader", ["fork", sharing, 2], 60).facts["loaders"]
    assert row["ok"], row
    assert row["batches_per_s"] > 0


@pytest.mark.slow
def test_a_spawned_worker_finds_the_dataset(worker: Worker) -> None:
    (row,) = worker.ask("loader", ["spawn", "file_descriptor", 1], 60).facts["loaders"]
    assert row["ok"], row


@pytest.mark.slow
def test_two_processes_reduce_over_gloo(tmp_path: Path) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(sys.executable, dict(os.environ))) for _ in range(2)]
        for rank, worker in enumerate(workers):
            worker.begin("collective", ["gloo", rank, 2, str(tmp_path / "store"), None], 60)
        first, second = (worker.wait() for worker in workers)
    assert [(row["op"], row["correct"]) for row in first.facts["collectives"]] == [("all_reduce", True)] * 2
    assert (second.facts, second.failed) == ({"collectives": []}, False)


@pytest.mark.slow
def test_a_product_that_is_wrong_in_one_element_is_found(tmp_path: Path) -> None:
    environ = _environ(tmp_path, REAL.format(folder=str(tmp_path)))
    with Worker(sys.executable, environ) as worker:
        rows = worker.ask("gemm", [None], 60).facts["gemm"]
    assert [(row["format"], row["correct"]) for row in rows] == [("fp32", False), ("bf16", False)]


STAGES: list[tuple[str, list[Any]]] = [
    ("gemm", [None]),
    ("memory", [None]),
    ("host_link", [0]),
    ("launch", [0]),
    ("features", [None]),
    ("compile", [None]),
    ("loader", ["fork", "file_system", 1]),
    ("peer", [0, 1]),
    ("collective", ["gloo", 0, 1, "store", None]),
]
every_stage = pytest.mark.parametrize(("stage", "arguments"), STAGES, ids=[name for name, _ in STAGES])


@every_stage
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda number: number.name)
def test_a_death_in_any_stage_is_told_with_its_signal(
    stage: str, arguments: list[Any], number: signal.Signals, tmp_path: Path
) -> None:
    fault = "segfault()" if number is signal.SIGSEGV else "killed()"
    with Worker(sys.executable, _environ(tmp_path, _stub(fault, everything=True))) as worker:
        answer = worker.ask(stage, arguments, 30)
    assert (answer.failed, answer.signal, answer.timed_out) == (True, number, False)


@every_stage
def test_a_hang_in_any_stage_is_ended_at_its_deadline_and_the_next_is_asked_of_a_new_child(
    stage: str, arguments: list[Any], tmp_path: Path
) -> None:
    with Worker(sys.executable, _environ(tmp_path, _stub("hangs()", everything=True))) as worker:
        answer = worker.ask(stage, arguments, 2.0)
        assert (answer.timed_out, answer.deadline_s) == (True, 2.0)
        assert "in hangs" in (answer.stack or "") or "wait" in (answer.stack or "")
        assert worker.ask("no such stage", [], 20).error == "KeyError: 'no such stage'"


def _stub(fault: str, *, everything: bool = False) -> str:
    """A torch that has a fault wherever it is touched; with `everything` in torch.cuda and torch.distributed too."""
    text = FAKE.replace("{fault}", fault)
    if everything:
        text += "class Faulty:\n    is_initialized = staticmethod(lambda: False)\n"
        text += f"    def __getattr__(self, name):\n        {fault}\ncuda = distributed = Faulty()\n"
    return text


def test_a_stage_that_dies_costs_itself_alone(tmp_path: Path) -> None:
    stub = _stub("raise RuntimeError(name)") + "randn, zeros = segfault, killed\n"
    stub += "float32 = bfloat16 = None\ndevice = str\n"
    found = measured.read(System(environ=_environ(tmp_path, stub), deep=True))
    assert [(item.stage, item.signal) for item in found.failures[:3]] == [
        ("gemm", signal.SIGSEGV),
        ("memory", signal.SIGKILL),
        ("features", signal.SIGSEGV),
    ]
    assert {item.error for item in found.failures[3:]} == {
        f"{method}, {sharing}: RuntimeError: multiprocessing" for method, sharing in measured.LOADERS
    }
    assert [(item.name, item.error) for item in found.features] == [("compile", "RuntimeError: nn")]
    assert found.unread == {"collectives": "this torch has no gloo"}


def test_a_torch_that_cannot_be_imported_leaves_the_subject_unread(tmp_path: Path) -> None:
    environ = _environ(tmp_path, "raise ImportError('libcudnn.so.9: cannot open shared object file')")
    with pytest.raises(NotRead, match=r"torch in a child: ImportError: libcudnn\.so\.9"):
        measured.read(System(environ=environ, deep=True))


def test_only_the_stages_asked_for_are_done(tmp_path: Path) -> None:
    environ = _environ(tmp_path, _stub("segfault()"))
    found = measured.read(System(environ=environ, deep=True, stages=frozenset({"memory"})))
    assert [failure.stage for failure in found.failures] == ["memory"]


def test_without_time_stages_are_left_out_and_named(tmp_path: Path) -> None:
    environ = _environ(tmp_path, _stub("segfault()"))
    with pytest.raises(NotRead, match="no time left"):
        measured.read(System(environ=environ, deep=True, timeout_s=1.0))


def test_a_recorded_machine_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="a recorded machine"):
        measured.read(System(root=tmp_path))


# Several GPUs, with a child that only says what it would have measured

TWO_GPUS = """
import json, signal, sys, threading
for line in sys.stdin:
    asked = json.loads(line)
    stage, words = asked["stage"], asked["arguments"]
    facts = {
        "devices": lambda: {"uuids": ["0000000%d-0000-0000-0000-000000000000" % i for i in (1, 0)],
                            "names": ["H100"] * 2, "rocm": False, "nccl": True, "gloo": True},
        "gemm": lambda: {"gemm": [{"gpu": words[0], "format": "fp32", "size": 8192, "tflops": 50.0}]},
        "peer": lambda: {"peers": [{"first": words[0], "second": words[1], "intact": True}]},
        "collective": lambda: {"collectives": [] if words[1] else [
            {"op": "all_reduce", "bytes": 4, "bus_gb_s": 1.0, "backend": "nccl", "ranks": 2, "correct": True}]},
        "loader": lambda: {"loaders": [{"start_method": words[0], "sharing": words[1], "batch_bytes": 1, "ok": True}]},
    }.get(stage, dict)()
    if FAULT:
        threading.Event().wait()
    print("\\n@gpudoctor " + json.dumps({"done": stage, "facts": facts}), flush=True)
"""


def _read_two(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *boards: nvml.Board, fault: str = "False", **system: Any
) -> Measured:
    script = folder / "child.py"
    script.write_text(TWO_GPUS.replace("FAULT", fault))
    monkeypatch.setattr(measure_worker, "SCRIPT", script)
    monkeypatch.setattr(measured, "nvml_if_any", lambda _: nullcontext(Nvml(nvml.Machine(*boards))))
    monkeypatch.setattr(measured, "PEER_S", 1.0)
    monkeypatch.setattr(measure_boards, "LOOK_AGAIN_S", 0.0)
    return measured.read(System(deep=True, **system))


def test_figures_stand_under_the_numbers_nvml_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = _read_two(monkeypatch, tmp_path, nvml.h100(0), nvml.h100(1))
    assert [row.gpu for row in found.gemm] == [1, 0]
    assert [(pair.first, pair.second) for pair in found.peers] == [(1, 0), (0, 1)]
    assert [(row.ranks, row.correct) for row in found.collectives] == [(2, True)]
    assert len(found.loaders) == 3
    assert (found.failures, found.unread, found.shared) == ((), {}, ())


def test_a_peer_that_cannot_be_reached_is_named_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = _read_two(monkeypatch, tmp_path, nvml.h100(0), nvml.h100(1), fault="stage == 'peer' and words == [0, 1]")
    assert [(item.stage, item.gpus, item.timed_out) for item in found.failures] == [("peer", (1, 0), True)]
    assert [(pair.first, pair.second) for pair in found.peers] == [(0, 1)]
    assert len(found.collectives) == 1


def test_a_gpu_that_others_use_is_left_out_unless_forced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used = nvml.h100(1).but(ComputeRunningProcesses=[nvml.process(999999, 5000)])
    found = _read_two(monkeypatch, tmp_path, nvml.h100(0), used)
    assert [row.gpu for row in found.gemm] == [0]
    assert found.unread == {"GPU 1": "in use by pid 999999; --force measures it all the same"}
    assert (found.peers, found.collectives) == ((), ())
    forced = _read_two(monkeypatch, tmp_path, nvml.h100(0), used, force=True)
    assert ([row.gpu for row in forced.gemm], forced.shared, forced.unread) == ([1, 0], (1,), {})


# Boards


@pytest.mark.parametrize(
    ("board", "why"),
    [
        (Gpu(index=0, processes=(), memory_used_bytes=0), None),
        (Gpu(index=0, processes=(GpuProcess(pid=7, memory_bytes=2**30, name="python"),)), "in use by python 7"),
        (Gpu(index=0, processes=(GpuProcess(pid=7, memory_bytes=2**30, ours=True),)), None),
        (Gpu(index=0, processes=(GpuProcess(pid=7, memory_bytes=0),)), None),
        (Gpu(index=0, processes=(GpuProcess(pid=7, kind="graphics", memory_bytes=2**28),)), None),
        (
            Gpu(index=0, processes=(), memory_used_bytes=3 * 2**30),
            "3,221,225,472 bytes in use by a process that is not to be seen",
        ),
        (Gpu(index=0, processes=(), memory_used_bytes=3 * 2**30, memory_node=1), None),
    ],
)
def test_a_board_that_others_use_is_told_from_a_free_one(board: Gpu, why: str | None) -> None:
    assert measure_boards.used_by_others(board) == why


def test_torch_s_numbers_are_matched_to_boards_by_their_uuid() -> None:
    machine = Nvml(nvml.Machine(nvml.h100(0), nvml.h100(1), nvml.h100(2)))
    boards = measure_boards.untouched(System(), machine)
    devices = measure_boards.devices_of({"uuids": ["00000002-0000-0000-0000-000000000000", "no-such"]}, boards)
    assert [(device.number, device.index, device.board is None) for device in devices] == [(0, 2, False), (1, 1, True)]


def test_what_nvml_says_while_a_board_works_leaves_out_the_idle_moments() -> None:
    board = nvml.h100()
    machine = Nvml(nvml.Machine(board))
    idle = measure_boards.look(machine, board)
    board.answers.update(CurrentClocksEventReasons=0x4, CurrPcieLinkGeneration=5, ClockInfo=1755, PowerUsage=690_000)
    load = measure_boards.load(3, "gemm", [idle, measure_boards.look(machine, board)])
    assert (load.gpu, load.clock_sm_mhz, load.power_w, load.throttle_reasons) == (3, 1755, 690.0, ("sw_power_cap",))


def test_the_child_asks_for_no_gpu_stage_on_a_cpu() -> None:
    assert set(measure_child.STAGES) >= {name for name, _ in STAGES}
