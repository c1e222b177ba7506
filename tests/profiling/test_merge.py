"""The trace of all ranks."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.run import Rank
from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.job import analyze
from gpudoctor.profiling.merge import merge
from tests.profiling.kineto_writer import Job, write

BASE_NS = 1_700_000_000_000_000_000


def test_all_events_of_all_ranks_are_in_it(tmp_path: Path) -> None:
    paths = write(Job(ranks=3), tmp_path)
    events = _merged(paths, tmp_path)
    told = sum(event["ph"] != "M" for path in paths for event in json.loads(path.read_text())["traceEvents"])
    assert sum(event["ph"] != "M" for event in events) == told
    assert {event["pid"] // 10_000 for event in events} == {1, 2, 3}


@pytest.mark.parametrize("old", [False, True])
def test_clocks_of_hosts_apart_by_seconds_are_laid_on_one_axis(tmp_path: Path, old: bool) -> None:
    paths = write(Job(ranks=4, old=old, clock_offset_s={2: 30.0, 3: -7.5}), tmp_path)
    events = _merged(paths, tmp_path)
    ends: dict[int, list[float]] = {}
    for event in events:
        if event["ph"] == "X" and "nccl" in event["name"]:
            ends.setdefault(event["pid"] // 10_000, []).append(event["ts"] + event["dur"])
    assert set(ends) == {1, 2, 3, 4}
    for mine in ends.values():
        assert sorted(mine) == pytest.approx(sorted(ends[1]), abs=1.0)
    assert min(event["ts"] for event in events if "ts" in event) > 0


def test_clocks_of_one_host_are_taken_as_they_are(tmp_path: Path) -> None:
    first = _trace(tmp_path / "a.json", [_span(10, ts=1000.5)], base_ns=BASE_NS)
    second = _trace(tmp_path / "b.json", [_span(10, ts=500.25)], base_ns=BASE_NS + 1_000_000)
    at = {"clock_ahead_ns": 5_000_000, "host": "node1"}
    events = _spans(
        [
            (Rank(rank=0, host="node1", clock_base_ns=BASE_NS + 1_000_000), first),
            (Rank(rank=1, clock_base_ns=BASE_NS + 1_500_000, **at), second),  # type: ignore[arg-type]
        ],
        tmp_path,
    )
    # Origins are whole microseconds: 1000 and 500.
    assert events[1]["ts"] - events[0]["ts"] == pytest.approx(499.75)


def test_processes_are_named_by_rank_and_empty_ones_left_out(tmp_path: Path) -> None:
    named = [
        _meta(77, "process_labels", {"labels": "CPU"}),
        *(_meta(gpu, "process_labels", {"labels": f"GPU {gpu}"}) for gpu in range(8)),
        _meta(77, "thread_name", {"name": "thread 5"}),
    ]
    path = _trace(tmp_path / "t.json", [*named, _span(77), _span(1), {**_span("Spans"), "name": "mark"}])
    events = _load([(Rank(rank=3), path)], tmp_path)
    names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert sorted(names) == ["rank 3 · GPU 1", "rank 3 · host"]
    assert {event["pid"] for event in events} == set(names.values())
    assert [event["pid"] for event in events if event["name"] == "thread_name"] == [names["rank 3 · host"]]
    assert "mark" not in {event["name"] for event in events}


def test_arrows_stay_in_their_rank(tmp_path: Path) -> None:
    arrow = {"ph": "s", "id": 7, "pid": 1, "tid": 1, "ts": 1.0, "name": "ac2g", "cat": "ac2g"}
    path = _trace(tmp_path / "t.json", [_span(1), arrow, {**arrow, "id": "0x7"}])
    events = _load([(Rank(rank=0), path), (Rank(rank=1), path)], tmp_path)
    assert len({event["id"] for event in events if event["ph"] == "s"}) == 4


def test_arguments_come_through_unchanged(tmp_path: Path) -> None:
    span = {**_span(1), "args": {"ts": 5, "pid": [1], "é": None, "Collective name": "allreduce"}, "cname": "good"}
    path = _trace(tmp_path / "t.json", [span])
    (event,) = _spans([(Rank(rank=0), path)], tmp_path)
    assert {**event, "pid": 1, "ts": span["ts"]} == span


def test_what_is_whole_of_a_cut_trace_is_in_it(tmp_path: Path) -> None:
    paths = write(Job(ranks=2), tmp_path)
    paths[1].write_bytes(paths[1].read_bytes()[:-4000])
    ranks = [(Rank(rank=number), path) for number, path in enumerate(paths)]
    unread = merge(ranks, tmp_path / "all.json.gz")
    assert "cut off" in unread[paths[1].name]
    assert {event["pid"] // 10_000 for event in _read(tmp_path)} == {1, 2}


def test_a_value_that_is_no_json_costs_no_event(tmp_path: Path) -> None:
    path = _trace(tmp_path / "t.json", [_span(1), _span(1)])
    path.write_text(path.read_text().replace('"dur": 2.0', '"dur": inf', 1))
    assert len(_spans([(Rank(rank=0), path)], tmp_path)) == 2


def test_a_file_that_is_no_trace_is_told_and_the_others_are_merged(tmp_path: Path) -> None:
    good = _trace(tmp_path / "good.json", [_span(1)])
    bad = tmp_path / "bad.json"
    bad.write_text("hello")
    unread = merge([(Rank(rank=0), bad), (Rank(rank=1), good)], tmp_path / "all.json.gz")
    assert list(unread) == ["bad.json"]
    assert len(_read(tmp_path)) > 0


def test_nothing_is_left_where_no_trace_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.json"):
        merge([(Rank(rank=0), tmp_path / "gone.json")], tmp_path / "all.json.gz")
    with pytest.raises(TraceError, match="no trace"):
        merge([], tmp_path / "all.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    good = _trace(tmp_path / "good.json", [_span(1)])
    with pytest.raises(OSError, match="missing"):
        merge([(Rank(rank=0), good)], tmp_path / "missing" / "all.json.gz")


def _merged(paths: list[Path], folder: Path) -> list[dict[str, Any]]:
    """As `analyze` finds the ranks."""
    run = analyze(paths, workers=1)
    return _load(list(zip(run.ranks, paths, strict=True)), folder)


def _load(traces: list[tuple[Rank, Path]], folder: Path) -> list[dict[str, Any]]:
    assert merge(traces, folder / "all.json.gz") == {}
    return _read(folder)


def _spans(traces: list[tuple[Rank, Path]], folder: Path) -> list[dict[str, Any]]:
    return [event for event in _load(traces, folder) if event["ph"] == "X"]


def _read(folder: Path) -> list[dict[str, Any]]:
    told = json.loads(gzip.decompress((folder / "all.json.gz").read_bytes()))
    events: list[dict[str, Any]] = told["traceEvents"]
    return events


def _trace(path: Path, events: list[dict[str, Any]], base_ns: int | None = None) -> Path:
    header = {"baseTimeNanoseconds": base_ns} if base_ns is not None else {}
    path.write_text(json.dumps({**header, "traceEvents": events}, indent=2, ensure_ascii=False))
    return path


def _span(process: int | str, ts: float = 1000.0) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": process, "tid": 5, "ts": ts, "dur": 2.0}


def _meta(process: int, name: str, args: dict[str, str]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "tid": 5, "ts": 0.0, "args": args}
