"""What is read back from a run folder, whole or cut off."""

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.profiling.folder import FolderError, make, processes, raised


def _write(folder: Path, pid: int, **fields: Any) -> None:
    job = {"steps_seen": fields.pop("steps", 5), "loaders": fields.pop("loaders", [])}
    record = {"rank": 0, "world_size": 1, "pid": pid, "phase": "done", "job": job, **fields}
    (folder / f"process-{pid}.json").write_text(json.dumps(record))


def test_ranks_come_in_order_and_the_launcher_is_none(tmp_path: Path) -> None:
    _write(tmp_path, 1, steps=0)
    _write(tmp_path, 2, rank=1)
    _write(tmp_path, 3, rank=0)
    assert [(process.rank, process.pid) for process in processes(tmp_path)] == [(0, 3), (1, 2)]


def test_of_several_processes_with_one_rank_the_traced_one_counts(tmp_path: Path) -> None:
    """A job that trains twice in a row, or a launcher that forgets to set RANK."""
    _write(tmp_path, 1, steps=100)
    _write(tmp_path, 2, steps=30, trace="trace-2.json")
    assert [process.pid for process in processes(tmp_path)] == [2]


def test_a_record_cut_off_is_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    (tmp_path / "process-2.json").write_text('{"rank": 1, "wor')
    assert [process.pid for process in processes(tmp_path)] == [1]


def test_the_workers_batches_tell_what_a_batch_costs(tmp_path: Path) -> None:
    _write(tmp_path, 1, loaders=[{"workers": 2, "dataset": "Images"}, {"workers": 0, "dataset": "Other"}])
    lines = [[1, "Images", 0.2, 0.05, 1000], [1, "Images", 0.4, 0.05, 3000], [9, "Images", 9.0, 9.0, 9]]
    (tmp_path / "workers-7.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + '\n[1, "Im')
    (process,) = processes(tmp_path)
    images, other = process.job.loaders
    assert images.batch_ms == pytest.approx(300)
    assert (images.batch_cpu_ms, images.batch_read_bytes) == (50, 2000)
    assert other.batch_ms is None


def test_the_first_to_fall_tells_why_the_job_died(tmp_path: Path) -> None:
    _write(tmp_path, 1, raised="Connection closed by peer", rank=0)
    _write(tmp_path, 2, raised="ValueError: planted", rank=1)
    os.utime(tmp_path / "process-1.json", (2000, 2000))
    os.utime(tmp_path / "process-2.json", (1000, 1000))
    assert raised(tmp_path) == "ValueError: planted"


def test_nothing_raised_is_none(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    assert raised(tmp_path) is None


def test_two_runs_of_one_second_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert [str(make(None, now)), str(make(None, now))] == [
        "gpudoctor-runs/20260102-030405",
        "gpudoctor-runs/20260102-030405-2",
    ]


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()
    with pytest.raises(FolderError, match="is not empty; give --out a new folder"):
        make(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="cannot make"):
        make(tmp_path / "file" / "run")
