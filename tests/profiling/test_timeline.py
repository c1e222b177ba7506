"""Steps and shares: the recorded traces against their known answers, and small cases by hand."""

import json
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.intervals import length
from gpudoctor.profiling.timeline import SHARES, Timeline, measure
from gpudoctor.profiling.trace import read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORDED = Path(__file__).parent.parent / "recorded/traces"
TRUTH = {entry["name"]: entry for entry in tomllib.loads((RECORDED / "truth.toml").read_text())["trace"]}
FILES = [(name, index, file) for name, entry in TRUTH.items() for index, file in enumerate(entry["files"])]


@cache
def recorded(file: str) -> Timeline:
    return measure(read(RECORDED / file))


@pytest.mark.parametrize(("name", "index", "file"), FILES, ids=[file for _, _, file in FILES])
def test_recorded_traces_give_the_known_answers(name: str, index: int, file: str) -> None:
    timeline, truth = recorded(file), TRUTH[name]
    # Ranks differ by less than the truth's own mean over them.
    assert timeline.window / len(timeline.steps) / 1e6 == pytest.approx(truth["step_ms"], rel=0.005)
    for share in SHARES:
        assert getattr(timeline.shares, share) == pytest.approx(truth[share][index], abs=0.002), share


@pytest.mark.parametrize("file", [file for _, _, file in FILES])
def test_every_moment_of_the_window_counts_once(file: str) -> None:
    timeline = recorded(file)
    assert sum(length(timeline.parts[name]) for name in SHARES) == timeline.window
    assert sum(getattr(timeline.shares, name) for name in SHARES) == pytest.approx(1)


def test_a_host_that_runs_ahead_does_not_shorten_the_step() -> None:
    """The marks on the host last 36 ms each while the device needs 42 ms; a busy share of 1.1 would come of it."""
    timeline = recorded("healthy.rank0.json.gz")
    assert TRUTH["healthy"]["step_ms_by_host_spans"] < 36
    assert timeline.window / len(timeline.steps) / 1e6 == pytest.approx(42.06, abs=0.01)
    assert timeline.shares.busy == pytest.approx(0.975, abs=0.001)


def test_steps_follow_each_other_without_a_gap() -> None:
    steps = recorded("healthy.rank0.json.gz").steps
    assert [step.number for step in steps] == [8, 9, 10]
    assert all(left.end_ns == right.start_ns for left, right in pairwise(steps))


def event(category: str, name: str, start: float, end: float, *, tid: int = 1, correlation: int | None = None) -> Any:
    device = category in ("kernel", "gpu_memcpy", "gpu_memset")
    args = {} if correlation is None else {"correlation": correlation}
    where = {"pid": 0, "tid": 7} if device else {"pid": 100, "tid": tid}
    return {"ph": "X", "cat": category, "name": name, **where, "ts": start, "dur": end - start, "args": args}


def launched(name: str, at: float, start: float, end: float, correlation: int, category: str = "kernel") -> list[Any]:
    call = "cudaLaunchKernel" if category == "kernel" else "cudaMemcpyAsync"
    return [
        event("cuda_runtime", call, at, at + 2, correlation=correlation),
        event(category, name, start, end, correlation=correlation),
    ]


def step(number: int, start: float, end: float) -> list[Any]:
    return [
        event("user_annotation", f"ProfilerStep#{number}", start, end),
        event("gpu_user_annotation", f"ProfilerStep#{number}", start + 5, end + 5),
    ]


def timeline_of(tmp_path: Path, *events: list[Any]) -> Timeline:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [one for group in events for one in group]}))
    return measure(read(path))


def microseconds(timeline: Timeline) -> dict[str, float]:
    return {name: length(timeline.parts[name]) / 1000 for name in SHARES if length(timeline.parts[name])}


def test_precedence_each_moment_counts_for_the_first_that_holds(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        step(1, 0, 100),
        step(2, 100, 1100),
        launched("warm", 5, 80, 100, 1),
        launched("gemm", 100, 120, 200, 2),
        launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 103, 150, 300, 3),
        launched("Memcpy HtoD (Pinned -> Device)", 106, 250, 340, 4, "gpu_memcpy"),
        [
            event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 330, 500),
            event("cuda_runtime", "cudaStreamSynchronize", 450, 600),
            event("cpu_op", "aten::item", 440, 650),
        ],
        launched("last", 900, 990, 1000, 5),
    )
    assert microseconds(timeline) == {
        "compute": 80 + 10,
        "communication": 100,
        "copies": 40,
        "loader": 160,
        "sync": 100,
        "launch": 3 * 2 + 50 + 2,
        "host": 14 + 250 + 88,
    }


def test_leftovers_of_the_warm_up_belong_to_no_step(tmp_path: Path) -> None:
    """A kernel launched before the first mark, and one whose launch is not in the trace."""
    timeline = timeline_of(
        tmp_path,
        launched("before", 0, 90, 130, 1),
        [event("kernel", "older", 20, 60, correlation=77)],
        step(4, 50, 150),
        step(5, 150, 250),
        launched("first", 60, 140, 160, 2),
        launched("second", 160, 170, 260, 3),
    )
    assert [(one.number, one.ms) for one in timeline.steps] == [(5, 0.1)]
    assert microseconds(timeline) == {"compute": 90, "launch": 2, "host": 8}


def test_one_step_alone_begins_at_its_mark(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, step(4, 50, 150), launched("first", 60, 70, 160, 2))
    assert [(one.number, one.ms) for one in timeline.steps] == [(4, 0.11)]


def test_without_marks_the_whole_span_is_measured_and_no_step_is_claimed(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, launched("a", 0, 10, 20, 1), launched("b", 30, 40, 50, 2))
    assert timeline.steps == ()
    assert timeline.window == 40_000


def test_threads_that_launch_nothing_hold_nothing_back(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        step(1, 0, 10),
        step(2, 10, 110),
        launched("a", 0, 5, 10, 1),
        [event("cpu_op", "aten::copy_", 20, 90, tid=2), event("cuda_runtime", "cudaEventSynchronize", 20, 90, tid=2)],
        launched("b", 98, 105, 110, 2),
    )
    assert microseconds(timeline) == {"compute": 5, "launch": 2, "host": 93}


def test_on_a_job_without_device_operators_are_the_compute(tmp_path: Path) -> None:
    fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    timeline = timeline_of(
        tmp_path,
        step(1, 0, 100),
        step(2, 100, 200),
        [event("cpu_op", "aten::mm", 50, 100)],
        [event("user_annotation", fetch, 100, 130), event("cpu_op", "aten::stack", 110, 125)],
        [event("cpu_op", "aten::mm", 140, 170), event("cpu_op", "aten::addmm", 145, 160)],
        [event("cpu_op", "c10d::allreduce_", 165, 168), event("user_annotation", "gloo:all_reduce", 165, 190, tid=9)],
        [event("cpu_op", "aten::add_", 195, 200)],
    )
    assert timeline.on_cpu
    assert microseconds(timeline) == {"compute": 35, "communication": 20, "loader": 30, "host": 15}


def test_scopes_that_older_torch_wrote_as_operators_are_none(tmp_path: Path) -> None:
    fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    timeline = timeline_of(
        tmp_path,
        [event("Operator", "ProfilerStep#1", 0, 100), event("Operator", "ProfilerStep#2", 100, 200)],
        [event("Operator", "aten::mm", 50, 100), event("Operator", fetch, 100, 120)],
        [event("Operator", "Optimizer.step#SGD.step", 130, 180), event("Operator", "aten::add_", 140, 150)],
        [event("Operator", "aten::mm", 190, 200)],
    )
    assert [one.number for one in timeline.steps] == [2]
    assert microseconds(timeline) == {"compute": 20, "loader": 20, "host": 60}


@pytest.mark.parametrize(
    "kernel",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
        "multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
    ],
)
def test_collectives_are_known_by_old_and_new_names(tmp_path: Path, kernel: str) -> None:
    timeline = timeline_of(tmp_path, launched("a", 0, 5, 10, 1), launched(kernel, 7, 10, 30, 2))
    assert microseconds(timeline) == {"compute": 5, "communication": 20}


def test_rocm_launches_tie_work_to_steps_as_well(tmp_path: Path) -> None:
    calls = [event("cuda_runtime", "hipLaunchKernel", at, at + 1, correlation=at) for at in (3, 14)]
    work = [event("kernel", "Cijk_Ailk_Bljk", start, start + 5, correlation=at) for at, start in ((3, 5), (14, 16))]
    timeline = timeline_of(tmp_path, step(1, 0, 12), step(2, 12, 24), calls, work)
    assert [one.ms for one in timeline.steps] == [0.011]


def test_a_trace_without_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no kernel and no operator"):
        timeline_of(tmp_path, step(1, 0, 10))
