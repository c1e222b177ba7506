"""Rules on the loader."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.job import Job, LoaderSetup
from gpudoctor.facts.run import CopyStats, LaunchStats, LoaderStats, Rank, StepShares
from gpudoctor.findings import Evidence, Severity
from gpudoctor.rules import loader
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

STARVED = StepShares(compute=0.18, loader=0.81, host=0.01)


def _run(cpus: int | None = 16, shares: StepShares = STARVED, on_gpu: bool = True, **setup: Any) -> Run:
    job = Job(timed_step_ms=200.0, loaders=(LoaderSetup(created_at="train.py:31", **setup),)) if setup else None
    rank = Rank(
        rank=0,
        device="NVIDIA H200" if on_gpu else "cpu",
        steps=3,
        step_ms=200.0,
        shares=shares,
        window_ns=(0, 600_000_000),
        launches=LaunchStats() if on_gpu else None,
        loader=LoaderStats(kind="_SingleProcessDataLoaderIter", count=3, duration_ns=510_000_000),
        job=job,
    )
    machine = Snapshot(cpu=Cpu(count=cpus) if cpus else None)
    return Run(ranks=(rank,), steps=3, step_ms=200.0, shares=shares, machine=machine)


def _only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1
    return found[0]


def test_a_starved_gpu_is_told_the_cost_of_a_batch_and_the_workers_that_hide_it() -> None:
    waiting, batch = loader.dataloader_starvation.judge(_run(workers=0, batch_ms=160.0, batch_cpu_ms=150.0))
    assert waiting.severity is Severity.ERROR
    assert waiting.where == "train.py:31"
    assert waiting.seen == "81% of the step, 162 of 200 ms"
    assert batch.seen == "160 ms (150 ms of CPU), made by no workers"
    assert waiting.fix[0].command == "num_workers=5, persistent_workers=True, pin_memory=True"


def test_no_more_workers_are_advised_than_the_cpus_allow() -> None:
    waiting, _ = loader.dataloader_starvation.judge(_run(cpus=4, workers=0, batch_ms=160.0, batch_cpu_ms=160.0))
    assert waiting.fix[0].command == "num_workers=4, persistent_workers=True, pin_memory=True"
    assert waiting.cost is not None
    assert waiting.cost.step_ms_at_best == pytest.approx(40.0)


def test_the_best_case_of_a_cpu_job_leaves_it_the_work_of_both() -> None:
    run = _run(cpus=2, on_gpu=False, workers=0, batch_ms=160.0, batch_cpu_ms=160.0)
    waiting, _ = loader.dataloader_starvation.judge(run)
    assert waiting.cost is not None
    assert waiting.cost.step_ms_at_best == pytest.approx(80 + 38)
    assert "pin_memory" not in (waiting.fix[0].command or "")


def test_where_the_cpus_are_the_limit_the_batch_must_get_cheaper() -> None:
    waiting, _ = loader.dataloader_starvation.judge(_run(cpus=4, workers=4, batch_ms=400.0, batch_cpu_ms=390.0))
    assert waiting.fix[0] is loader.CHEAPER


def test_a_tenth_of_the_step_is_a_warning() -> None:
    waiting, *_ = loader.dataloader_starvation.judge(_run(shares=StepShares(compute=0.85, loader=0.15)))
    assert waiting.severity is None or waiting.severity is Severity.WARNING


def test_the_handing_over_of_a_ready_batch_is_no_starvation() -> None:
    run = _run()
    quick = msgspec.structs.replace(run.ranks[0], step_ms=0.5)
    assert not list(loader.dataloader_starvation.judge(msgspec.structs.replace(run, ranks=(quick,))))


def test_no_workers_is_said_where_the_device_waits() -> None:
    assert _only(list(loader.no_workers.judge(_run()))).seen == "0"
    assert not list(loader.no_workers.judge(_run(shares=StepShares(compute=1.0))))
    assert not list(loader.no_workers.judge(_run(workers=2)))


def test_pageable_copies_in_plain_view_cost_their_share() -> None:
    copy = CopyStats(
        direction="HtoD", source="Pageable", target="Device", count=3, duration_ns=60_000_000, exposed_ns=60_000_000
    )
    run = _run(pin_memory=False)
    run = msgspec.structs.replace(run, ranks=(msgspec.structs.replace(run.ranks[0], copies=(copy,)),))
    found = _only(list(loader.pageable_copies.judge(run)))
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(180.0)
    assert found.fix[0].command == "pin_memory=True"


def test_pageable_copies_that_compute_hides_cost_nothing() -> None:
    copy = CopyStats(direction="HtoD", source="Pageable", count=3, duration_ns=60_000_000, exposed_ns=0)
    run = _run()
    run = msgspec.structs.replace(run, ranks=(msgspec.structs.replace(run.ranks[0], copies=(copy,)),))
    assert not list(loader.pageable_copies.judge(run))


def test_workers_beyond_the_cpus_are_too_many_where_the_device_idles() -> None:
    found = _only(list(loader.too_many_workers.judge(_run(cpus=4, workers=8))))
    assert (found.severity, found.fix[0].command) == (Severity.WARNING, "num_workers=3")


def test_workers_beyond_the_cpus_harm_nobody_where_the_device_is_busy() -> None:
    found = _only(list(loader.too_many_workers.judge(_run(cpus=4, shares=StepShares(compute=1.0), workers=8))))
    assert found.severity is Severity.INFO


def test_as_many_workers_as_cpus_or_workers_that_wait_for_reads_are_not_too_many() -> None:
    assert not list(loader.too_many_workers.judge(_run(cpus=8, workers=8)))
    assert not list(loader.too_many_workers.judge(_run(cpus=None, workers=8)))
    waiting = _run(cpus=4, workers=8, batch_ms=100.0, batch_cpu_ms=5.0, batch_read_bytes=10**6)
    assert not list(loader.too_many_workers.judge(waiting))


def test_workers_that_restart_each_short_epoch_are_told() -> None:
    setup: dict[str, Any] = {"workers": 4, "persistent_workers": False, "epochs": 5, "batches": 40, "start_ms": 3000.0}
    found = _only(list(loader.workers_restart.judge(_run(**setup))))
    assert found.cost is not None
    assert found.cost.share_of_step == pytest.approx(0.6)
    assert found.cost.step_ms_now == pytest.approx(500.0)


def test_batches_that_are_late_at_the_start_of_an_epoch_alone_need_no_more_workers() -> None:
    setup: dict[str, Any] = {"workers": 4, "persistent_workers": False, "epochs": 5, "batches": 40, "start_ms": 3000.0}
    assert not list(loader.dataloader_starvation.judge(_run(**setup, wait_ms=1.0)))
    assert list(loader.dataloader_starvation.judge(_run(**setup, wait_ms=90.0)))


def test_a_loop_that_waits_for_a_cpu_does_not_wait_for_batches() -> None:
    run = _run()
    taken = msgspec.structs.replace(run.ranks[0], job=Job(cpu_wait_ms=160.0))  # of 162 ms in the loader
    assert not list(loader.dataloader_starvation.judge(msgspec.structs.replace(run, ranks=(taken,))))


@pytest.mark.parametrize(
    "other",
    [{"epochs": 1}, {"persistent_workers": True}, {"batches": 4000}, {"batch_ms": 2990.0}, {"workers": 0}],
    ids=str,
)
def test_workers_that_start_once_or_for_a_long_epoch_are_no_matter(other: dict[str, Any]) -> None:
    setup: dict[str, Any] = {"workers": 4, "persistent_workers": False, "epochs": 5, "batches": 40, "start_ms": 3000.0}
    assert not list(loader.workers_restart.judge(_run(**{**setup, **other})))


def test_a_batch_that_waits_for_reads_points_at_the_storage() -> None:
    setup: dict[str, Any] = {"workers": 2, "batch_ms": 300.0, "batch_cpu_ms": 30.0, "batch_read_bytes": 27 * 2**20}
    found = _only(list(loader.slow_storage.judge(_run(**setup))))
    assert found.confidence == "likely"
    assert found.seen.startswith("270 of 300 ms, 27 MiB read")


@pytest.mark.parametrize(
    "other", [{"batch_read_bytes": 0}, {"batch_cpu_ms": 290.0}, {"batch_read_bytes": None}, {"workers": 64}], ids=str
)
def test_a_batch_that_computes_or_sleeps_does_not(other: dict[str, Any]) -> None:
    setup: dict[str, Any] = {"workers": 2, "batch_ms": 300.0, "batch_cpu_ms": 30.0, "batch_read_bytes": 27 * 2**20}
    assert not list(loader.slow_storage.judge(_run(**{**setup, **other})))
