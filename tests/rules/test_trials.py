"""What was tried and failed: wrong numbers, lost bytes, deaths, hangs, a /dev/shm that cannot carry a batch."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.measured import CollectiveRate, Feature, GemmRate, LoaderTrial, Measured, PeerCopy, StageFailure
from gpudoctor.facts.shm import Shm
from gpudoctor.findings import Evidence, Rule, Severity, diagnose
from gpudoctor.rules.nccl_log import collective_timeout, nvls_fails, p2p_hang
from gpudoctor.rules.precision import wrong_product
from gpudoctor.rules.shm import RULES as SHM_RULES
from gpudoctor.rules.shm import shm_not_usable
from gpudoctor.rules.trials import operation_fails, p2p_writes_lost
from gpudoctor.snapshot import Snapshot


def _said(rule: Rule[Snapshot], **measured: Any) -> list[Evidence]:
    return list(rule.judge(Snapshot(measured=Measured(**measured))))


def _gemm(**fields: Any) -> GemmRate:
    return GemmRate(**{"gpu": 3, "format": "bf16", "size": 8192, "bound": 1.7e-2, **fields})


def test_a_product_beyond_the_bound_of_its_format_is_wrong() -> None:
    (found,) = _said(wrong_product, gemm=(_gemm(correct=False, relative_error=0.4),))
    assert (found.where, found.what, found.seen) == ("GPU 3", "bf16 product", "relative error 4.0e-01")
    assert found.wanted == "below 1.7e-02"


def test_a_product_that_is_no_number_is_wrong_on_the_cpu_too() -> None:
    (found,) = _said(wrong_product, gemm=(_gemm(gpu=None, correct=False),))
    assert (found.where, found.seen) == ("the CPU", "not a number")
    assert "memtest" in found.fix[0].text


def test_a_product_that_differs_from_itself_is_wrong() -> None:
    (found,) = _said(wrong_product, gemm=(_gemm(correct=True, repeatable=False),))
    assert found.seen == "different bits"


def test_a_product_that_was_not_compared_is_not_wrong() -> None:
    assert _said(wrong_product, gemm=(_gemm(correct=None, repeatable=None, tflops=1.0),)) == []


def test_a_pair_that_loses_writes_is_named() -> None:
    (found,) = _said(p2p_writes_lost, peers=(PeerCopy(first=0, second=5, intact=False, access=True),))
    assert (found.where, found.seen) == ("GPU 0 to GPU 5", "other bytes arrived")
    assert _said(p2p_writes_lost, peers=(PeerCopy(first=0, second=5, intact=True),)) == []


def test_a_peer_copy_that_hangs_is_named_and_told_once() -> None:
    hang = StageFailure(stage="peer", gpus=(0, 5), timed_out=True, deadline_s=20.0)
    (found,) = _said(p2p_hang, failures=(hang,))
    assert (found.where, found.seen) == ("GPU 0 to GPU 5", "no answer in 20 s")
    assert _said(operation_fails, failures=(hang,)) == []


def test_a_collective_that_hangs_is_named_and_told_once() -> None:
    hang = StageFailure(stage="collective", gpus=(0, 1), timed_out=True, deadline_s=90.0)
    (found,) = _said(collective_timeout, failures=(hang,))
    assert (found.where, found.seen) == ("GPU 0, 1", "no answer in 90 s")
    assert _said(operation_fails, failures=(hang,)) == []


def test_multicast_that_fails_is_nvls_and_told_once() -> None:
    words = "DistBackendError: NCCL error: transport/nvls.cc:254 NCCL WARN Cuda failure 401 binding multicast memory"
    failure = StageFailure(stage="collective", gpus=(1,), error=words)
    assert [item.seen for item in _said(nvls_fails, failures=(failure,))] == [words]
    assert _said(operation_fails, failures=(failure,)) == []


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        (
            {"signal": 11, "stack": "measure_child.py line 7 in gemm"},
            "died by SIGSEGV (measure_child.py line 7 in gemm)",
        ),
        ({"signal": 9}, "died by SIGKILL, most often for memory"),
        ({"timed_out": True, "deadline_s": 40.0}, "no answer in 40 s"),
        ({"exit_code": 3}, "the process ended with exit code 3"),
        (
            {"error": "RuntimeError: CUDA error: an illegal memory access"},
            "RuntimeError: CUDA error: an illegal memory access",
        ),
    ],
)
def test_how_a_stage_ended_is_told(fields: dict[str, Any], seen: str) -> None:
    (found,) = _said(operation_fails, failures=(StageFailure(stage="gemm", gpus=(2,), **fields),))
    assert (found.where, found.what, found.seen) == ("GPU 2", "matrix products", seen)


@pytest.mark.parametrize("error", ["OutOfMemoryError: CUDA out of memory. Tried to allocate 256 MiB"])
def test_memory_that_others_hold_is_no_failure(error: str) -> None:
    assert _said(operation_fails, failures=(StageFailure(stage="gemm", gpus=(2,), error=error),)) == []


def test_a_convolution_that_fails_is_an_error_and_a_compiler_a_warning() -> None:
    broken = (
        Feature(name="convolution", gpu=0, ok=False, error="RuntimeError: CUDNN_STATUS_NOT_INITIALIZED"),
        Feature(name="compile", gpu=0, ok=False, error="InductorError: Python.h"),
        Feature(name="attention cudnn", gpu=0, ok=False, skipped="not available on this device"),
    )
    found = _said(operation_fails, features=broken)
    assert [(item.what, item.severity) for item in found] == [("convolution", None), ("compile", Severity.WARNING)]


def test_a_collective_with_wrong_numbers_is_found() -> None:
    row = CollectiveRate(op="all_reduce", bytes=2**20, bus_gb_s=1.0, backend="nccl", ranks=8, correct=False)
    (found,) = _said(operation_fails, collectives=(row,))
    assert found.what == "all_reduce of 8 ranks over nccl, 1 MiB"


def _trial(error: str | None) -> LoaderTrial:
    return LoaderTrial(start_method="fork", sharing="file_descriptor", batch_bytes=2**25, ok=error is None, error=error)


BUS = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. workers are out of shared memory"
FULL = "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"
FILES = "RuntimeError: unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)"


@pytest.mark.parametrize("error", [BUS, FULL])
def test_a_batch_that_does_not_fit_through_shared_memory_is_found_once(error: str) -> None:
    (found,) = _said(shm_not_usable, loaders=(_trial(error),))
    assert (found.where, found.what) == ("/dev/shm", "batches of 32 MiB from workers (fork, file_descriptor)")
    assert _said(operation_fails, loaders=(_trial(error),)) == []


def test_a_worker_that_fails_for_another_reason_does_not_accuse_shared_memory() -> None:
    assert _said(shm_not_usable, loaders=(_trial(FILES), _trial(None))) == []
    assert [item.seen for item in _said(operation_fails, loaders=(_trial(FILES), _trial(None)))] == [FILES]


def test_a_small_shared_memory_is_the_cause_of_one_that_is_not_usable() -> None:
    machine = Snapshot(shm=Shm(total_bytes=16 * 2**20), measured=Measured(loaders=(_trial(BUS),)))
    (finding,) = diagnose(machine, SHM_RULES).findings
    assert (finding.code, finding.consequences) == ("SHM001", ("SHM004",))


def test_a_loader_process_that_died_by_the_bus_is_of_shared_memory() -> None:
    failure = StageFailure(stage="loader", error="fork, file_descriptor: Bus error", signal=7)
    assert len(_said(shm_not_usable, failures=(failure,))) == 1


def test_rules_on_trials_are_silent_without_any() -> None:
    rules = (operation_fails, p2p_writes_lost, shm_not_usable, wrong_product, nvls_fails, p2p_hang, collective_timeout)
    for rule in rules:
        assert list(rule.judge(Snapshot())) == []
        assert list(rule.judge(Snapshot(measured=Measured()))) == []
    assert msgspec.json.encode(Measured()) == b"{}"
