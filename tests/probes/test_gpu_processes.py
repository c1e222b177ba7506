"""Whose the processes on a GPU are."""

import os

from gpudoctor.probes import gpu_processes
from gpudoctor.probes.nvml import Nvml
from tests.probes.conftest import Record
from tests.probes.nvml_machines import Board, Machine, Refuses, process

CHECK, JOB, OTHERS = 500, 400, 900


def _stat(pid: int, name: str, parent: int) -> dict[str, str]:
    return {f"/proc/{pid}/stat": f"{pid} ({name}) S {parent} 1 1 0", f"/proc/{pid}/comm": name}


def test_the_check_its_children_and_the_job_that_started_it_are_ours(record: Record) -> None:
    system = record(
        {
            **_stat(os.getpid(), "gpudoctor", CHECK),
            **_stat(CHECK, "gpudoctor", JOB),
            **_stat(JOB, "python) (odd", 1),
            **_stat(1, "systemd", 0),
            **_stat(CHECK + 1, "gpudoctor", CHECK),
            **_stat(CHECK + 2, "smoke", CHECK + 1),
            **_stat(OTHERS, "python", 1),
        }
    )
    pids = (JOB, CHECK + 2, OTHERS, 901)
    board = Board(ComputeRunningProcesses=[process(pid, 500) for pid in pids])
    told = gpu_processes.read(Nvml(Machine()), board, system)
    assert told is not None
    assert [(item.pid, item.ours) for item in told] == [(JOB, True), (CHECK + 2, True), (OTHERS, False), (901, False)]
    assert [item.name for item in told] == ["python) (odd", "smoke", "python", None]


def test_processes_that_are_not_listed_are_unknown(record: Record) -> None:
    assert gpu_processes.read(Nvml(Machine()), Board(), record({})) is None
    refused = Nvml(Machine())
    assert gpu_processes.read(refused, Board(ComputeRunningProcesses=Refuses(4)), record({})) is None
    assert refused.failed == {"nvmlDeviceGetComputeRunningProcesses": "needs root"}
