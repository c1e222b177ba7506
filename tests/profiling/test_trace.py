"""Files as they come: both layouts, gzipped, cut off, damaged, no trace at all."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gpudoctor.profiling import blocks
from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.columns import Message
from gpudoctor.profiling.events import COPY, KERNEL, MEMSET, OPERATOR, RUNTIME
from gpudoctor.profiling.intervals import length, union
from gpudoctor.profiling.trace import Trace, read

RECORDED = Path(__file__).parent.parent / "recorded/traces"
HEALTHY = RECORDED / "healthy.rank0.json.gz"


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    path = tmp_path / "healthy.json"
    path.write_bytes(gzip.decompress(HEALTHY.read_bytes()))
    return path


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the cuts between blocks are met in traces of a few megabytes."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 18)


def same(left: Trace, right: Trace) -> bool:
    """The same events, whatever numbers their names have."""
    names = [[trace.names[name] for name in trace.columns.name.tolist()] for trace in (left, right)]
    return names[0] == names[1] and all(
        (getattr(left.columns, column) == getattr(right.columns, column)).all()
        for column in ("kind", "start", "duration", "correlation", "bytes")
    )


def test_every_event_of_a_recorded_trace_is_read_as_the_json_has_it(healthy: Path) -> None:
    trace, text = read(healthy), json.loads(healthy.read_bytes())
    events = text["traceEvents"]
    assert trace.events == len(events)
    assert trace.damage is None
    for kind, category in ((KERNEL, "kernel"), (COPY, "gpu_memcpy"), (MEMSET, "gpu_memset")):
        wanted = [event for event in events if event.get("cat") == category]
        chosen = np.flatnonzero(trace.columns.kind == kind)
        assert [trace.names[name] for name in trace.columns.name[chosen]] == [event["name"] for event in wanted]
        exact = np.array([event["ts"] - trace.origin_us for event in wanted]) * 1000
        assert np.abs(trace.columns.start[chosen] - exact).max() <= 1
        assert trace.columns.duration[chosen].tolist() == [round(event["dur"] * 1000) for event in wanted]


def test_operators_inside_others_are_left_out_unless_they_may_block(healthy: Path) -> None:
    trace, events = read(healthy), json.loads(healthy.read_bytes())["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    kept = np.flatnonzero(trace.columns.kind == OPERATOR)
    assert 0 < len(kept) < len(operators) / 2
    starts = trace.columns.start[kept]
    whole = np.array([[event["ts"], event["ts"] + event["dur"]] for event in operators]) - trace.origin_us
    every = union(*np.rint(whole.T * 1000).astype(np.int64))
    some = union(starts, starts + trace.columns.duration[kept])
    assert abs(length(every) - length(some)) <= len(every)  # a nanosecond of rounding each
    copies = [event for event in operators if event["name"] == "aten::copy_"]
    assert sum(trace.names[name] == "aten::copy_" for name in trace.columns.name[kept]) == len(copies)


def test_header_is_read_from_both_sides_of_the_events(healthy: Path) -> None:
    header = read(healthy).header
    assert header["distributedInfo"]["world_size"] == 1
    assert header["traceName"] == "healthy.rank0.json"


def test_times_since_1970_are_those_of_the_recording(healthy: Path) -> None:
    base = read(healthy).clock_base_ns
    assert base is not None
    assert 1_796_000_000 < base / 1e9 < 1_797_000_000


def test_gzipped_and_plain_read_the_same(healthy: Path) -> None:
    assert same(read(healthy), read(HEALTHY))


def test_gzip_is_told_by_content_not_by_name(healthy: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "trace.json"
    unnamed.write_bytes(HEALTHY.read_bytes())
    assert read(unnamed).events == read(healthy).events


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [False, True])
def test_worker_processes_read_the_same(healthy: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.profiling.trace.PARALLEL_BYTES", 0)
    assert same(read(HEALTHY if zipped else healthy, workers=2), read(healthy))


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_other_writers_layouts_read_the_same(healthy: Path, tmp_path: Path, indent: int | None) -> None:
    rewritten = tmp_path / "rewritten.json"
    rewritten.write_text(json.dumps(json.loads(healthy.read_bytes()), indent=indent, sort_keys=indent == 4))
    assert same(read(rewritten), read(healthy))


def test_a_bare_list_of_events_is_a_trace_without_header(healthy: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(json.loads(healthy.read_bytes())["traceEvents"]))
    trace = read(bare)
    assert same(trace, read(healthy))
    assert (trace.header, trace.damage) == ({}, None)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_of_a_file_cut_off_the_whole_events_are_used_and_said_so(healthy: Path, tmp_path: Path, kept: float) -> None:
    text = healthy.read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[: int(len(text) * kept)])
    trace, whole = read(cut), read(healthy)
    assert trace.damage == f"the file is cut off after {trace.events:,} events"
    assert 0 <= cut.read_bytes().count(b'"ph": ') - trace.events <= 1
    assert (trace.columns.start == whole.columns.start[: len(trace.columns.start)]).all()


def test_of_a_gzip_cut_off_the_whole_events_are_used_and_said_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(HEALTHY.read_bytes()[:300_000])
    trace = read(cut)
    assert trace.events > 5000
    assert trace.damage == f"the compressed file is cut off; {trace.events:,} events before that were read"


def test_of_a_damaged_gzip_the_whole_part_is_used_and_said_so(tmp_path: Path) -> None:
    damaged = bytearray(HEALTHY.read_bytes())
    damaged[300_000:300_200] = bytes(200)
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(damaged)
    trace = read(path)
    assert trace.events > 5000
    assert trace.damage is not None


def test_damage_in_the_middle_costs_the_events_it_hit(healthy: Path, tmp_path: Path) -> None:
    text = bytearray(healthy.read_bytes())
    text[3_000_000:3_000_300] = b"\x00\xff" * 150
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(text)
    trace = read(damaged)
    assert read(healthy).events - trace.events <= 4
    assert trace.damage is not None
    assert "are no events and were skipped" in trace.damage


def small(tmp_path: Path, events: str, after: str = "]}") -> Path:
    path = tmp_path / "small.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + events + after)
    return path


LAUNCH = (
    '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 2, "args": %s}'
)
WORK = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 14, "dur": 5, "args": %s}'


def test_numbers_that_are_no_json_hurt_nothing(tmp_path: Path) -> None:
    args = '{"correlation": 3, "est. achieved occupancy %": nan, "memory bandwidth (GB/s)": inf, "x": [-inf, NaN]}'
    trace = read(small(tmp_path, f"{LAUNCH % args},{WORK % args}"))
    assert (trace.events, trace.damage, trace.columns.correlation.tolist()) == (2, None, [3, 3])


@pytest.mark.parametrize("args", ['{"correlation": "3"}', "null", "[]"])
def test_arguments_of_another_shape_are_none(tmp_path: Path, args: str) -> None:
    trace = read(small(tmp_path, f"{LAUNCH % args},{WORK % '{}'}"))
    assert (trace.events, trace.columns.correlation.tolist()) == (2, [-1, -1])


def test_an_event_of_another_shape_is_skipped_and_counted(tmp_path: Path) -> None:
    odd = '{"ph": "X", "cat": "kernel", "name": ["k"], "pid": 0, "tid": 7, "ts": "soon"}'
    trace = read(small(tmp_path, f"{LAUNCH % '{}'},{odd},{WORK % '{}'}"))
    assert trace.columns.kind.tolist() == [RUNTIME, KERNEL]
    assert trace.damage is not None


def test_nesting_without_end_is_no_event(tmp_path: Path) -> None:
    deep = '{"ph": "X", "cat": "kernel", "name": "k", "args": ' + '{"a":' * 100_000 + "1" + "}" * 100_001
    trace = read(small(tmp_path, f"{LAUNCH % '{}'},{deep},{WORK % '{}'}"))
    assert trace.columns.kind.tolist() == [RUNTIME, KERNEL]
    assert trace.damage is not None


def test_an_event_larger_than_a_block_is_read(tmp_path: Path) -> None:
    large = json.dumps({"stack": "x" * 1_000_000})
    for suffix in ("", ".gz"):
        path = small(tmp_path, ",".join([LAUNCH % large, WORK % "{}", LAUNCH % large, WORK % "{}"]))
        if suffix:
            path.write_bytes(gzip.compress(path.read_bytes()))
        trace = read(path)
        assert (trace.events, trace.damage) == (4, None)


def test_names_beyond_ascii_and_braces_inside_strings_are_names(tmp_path: Path) -> None:
    name = r"}, {\"ph\": \"X\" – größer 模型"
    trace = read(small(tmp_path, ",".join((WORK % "{}").replace('"k"', f'"{name}"') for _ in range(3))))
    assert trace.names == ['}, {"ph": "X" – größer 模型']
    assert trace.damage is None


def test_metadata_behind_the_events_may_hold_lists_of_objects(tmp_path: Path) -> None:
    after = '], "deviceProperties": [{"id": 0}, {"id": 1}], "traceName": "t"}'
    trace = read(small(tmp_path, f"{LAUNCH % '{}'}, {WORK % '{}'}", after))
    assert (trace.events, trace.damage) == (2, None)
    assert trace.header["deviceProperties"] == [{"id": 0}, {"id": 1}]


def test_a_collective_carries_what_it_moves(tmp_path: Path) -> None:
    args = '{"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 80, "dtype": "BFloat16",'
    args += '"Group size": 8, "Process Group Name": "dp", "Process Group Ranks": "[0, 1]"}'
    trace = read(small(tmp_path, WORK % args))
    assert trace.details == [Message("_allgather_base", 160, "dp", 8, "[0, 1]")]


def test_memory_counters_give_the_peak_of_the_device(tmp_path: Path) -> None:
    counter = (
        '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 0, "tid": 0, "ts": 1, "args": %s}'
    )
    device = [counter % f'{{"Total Allocated": {size}, "Device Type": 1, "Device Id": 0}}' for size in (5, 9, 7)]
    host = counter % '{"Total Allocated": 50, "Device Type": 0, "Device Id": -1}'
    assert read(small(tmp_path, ",".join([*device, host, WORK % "{}"]))).memory_peak_bytes == 9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "an empty file"),
        (b"\x1f\x8b", "cut off"),
        (b"\x1f\x8bnot gzip at all", "damaged"),
        (b'{"schema": 1, "verdict": "ok"}', "no list of traceEvents"),
        (b"PK\x03\x04", "no list of traceEvents"),
        (b'{"traceEvents": []}', "no event in it"),
        (b"[1, 2, 3]", "no event in it"),
        (b'{"traceEvents": [', "no event in it"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}]}', "no event in it that a timeline"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text)
    with pytest.raises(TraceError, match=reason):
        read(path)
