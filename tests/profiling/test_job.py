"""Which traces make a run, and which do not."""

import json
import shutil
from pathlib import Path

import pytest

from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.job import analyze
from gpudoctor.run import Run
from tests.profiling.kineto_writer import Job, write

RECORDED = Path(__file__).parent.parent / "recorded/traces"


def test_shares_of_the_run_are_the_mean_over_ranks_and_sum_to_one() -> None:
    run = analyze([RECORDED / f"ddp-straggler.rank{rank}.json.gz" for rank in range(2)], workers=1)
    assert run.shares is not None
    assert run.shares.busy + run.shares.idle == pytest.approx(1)
    own = [rank.shares.host for rank in run.ranks if rank.shares is not None]
    assert run.shares.host == pytest.approx(sum(own) / 2)
    assert (run.world_size, run.steps, run.missing) == (2, 3, {})


def test_a_run_comes_back_from_json() -> None:
    run = analyze([RECORDED / f"ddp-gloo.rank{rank}.json.gz" for rank in range(2)], workers=1)
    assert Run.from_json(run.to_json()) == run


def test_a_folder_is_its_traces_whatever_else_lies_in_it(tmp_path: Path) -> None:
    write(Job(2), tmp_path, zipped=True)
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "process-7.json").write_text('{"rank": 0}')
    run = analyze([tmp_path], workers=1)
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert run.unread == {}


def test_a_file_that_was_named_and_is_no_trace_is_said_so(tmp_path: Path) -> None:
    (file,) = write(Job(1), tmp_path)
    (tmp_path / "process-7.json").write_text('{"rank": 0}')
    assert list(analyze([file, tmp_path / "process-7.json"], workers=1).unread) == ["process-7.json"]


def test_a_run_folder_is_the_run_that_was_saved(tmp_path: Path) -> None:
    saved = Run(world_size=3, exit_code=-9)
    (tmp_path / "run.json").write_bytes(saved.to_json())
    assert analyze([tmp_path]) == saved
    assert analyze([tmp_path / "run.json"]) == saved


def test_a_saved_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(TraceError, match="schema 99 is newer"):
        analyze([tmp_path])


def test_one_broken_trace_does_not_hide_the_others(tmp_path: Path) -> None:
    files = write(Job(3), tmp_path)
    files[1].write_bytes(b"")
    run = analyze(files, workers=1)
    assert [rank.rank for rank in run.ranks] == [0, 2]
    assert run.unread == {"rank1.json": "an empty file"}
    assert run.missing == {"rank 1": "no trace of it"}


def test_where_no_trace_can_be_read_the_reasons_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(TraceError, match=r"a\.json: no list of traceEvents"):
        analyze([tmp_path / "a.json"])
    with pytest.raises(TraceError, match="no trace"):
        analyze([_empty(tmp_path)])


def _empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_a_path_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        analyze([tmp_path / "nowhere.json"])


def test_of_two_traces_of_one_rank_the_one_with_more_steps_is_used(tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    (short,) = write(Job(1, steps=2), tmp_path / "short")
    (long,) = write(Job(1, steps=6), tmp_path)
    shutil.move(short, tmp_path / "rank0.again.json")
    run = analyze([tmp_path], workers=1)
    assert run.steps == 5
    assert run.unread == {"rank0.again.json": f"another trace of rank 0, {long.name}, is used"}


@pytest.mark.parametrize("names", [("rank0.json", "rank1.json"), ("w-7.3.json", "w-7.4.json"), ("a.json", "b.json")])
def test_ranks_of_traces_that_do_not_say_are_told_by_name_or_order(tmp_path: Path, names: tuple[str, str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file, name in zip(write(Job(2, old=True, late_us={1: 900}), source), names, strict=True):
        shutil.move(file, tmp_path / name)
    run = analyze([tmp_path / name for name in names], workers=1)
    assert [(rank.rank, rank.trace) for rank in run.ranks] == [(0, names[0]), (1, names[1])]
    assert run.arrivals[1].caused_ms == pytest.approx(0.9)


def test_a_trace_without_step_marks_has_shares_and_no_steps(tmp_path: Path) -> None:
    (file,) = write(Job(1), tmp_path)
    text = json.loads(file.read_text())
    text["traceEvents"] = [event for event in text["traceEvents"] if "ProfilerStep" not in event["name"]]
    file.write_text(json.dumps(text))
    run = analyze([file])
    assert (run.steps, run.step_ms) == (None, None)
    assert run.shares is not None
    assert run.shares.busy + run.shares.idle == pytest.approx(1)


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(Job(4, late_us={2: 900}), tmp_path)
    alone = analyze(files, workers=1)
    monkeypatch.setattr("gpudoctor.profiling.job.SMALL_BYTES", 0)
    done: list[str] = []
    assert analyze(files, workers=2, progress=done.append) == alone
    assert sorted(done) == [file.name for file in files]
