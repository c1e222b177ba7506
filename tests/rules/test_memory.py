"""Rules on the memory of each rank's device."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.job import Job, MemoryUse, ParallelSetup
from gpudoctor.facts.run import Allocations, LaunchStats, Rank, StepShares
from gpudoctor.findings import Severity
from gpudoctor.rules import memory
from gpudoctor.run import Run

GIB = 2**30


def _run(kind: str | None = "ddp", world_size: int = 2, communication: float = 0.0, **use: Any) -> Run:
    job = Job(steps_seen=100, parallel=ParallelSetup(kind=kind), memory=MemoryUse(total_bytes=80 * GIB, **use))
    shares = StepShares(compute=1 - communication, communication=communication)
    return Run(world_size=world_size, shares=shares, ranks=(Rank(rank=0, job=job),))


def test_frequent_retries_are_a_warning_and_rare_ones_an_info() -> None:
    assert [found.severity for found in memory.allocator_retries.judge(_run(retries=7))] == [Severity.WARNING]
    assert [found.severity for found in memory.allocator_retries.judge(_run(retries=1))] == [Severity.INFO]
    assert not list(memory.allocator_retries.judge(_run(retries=0)))


def test_a_peak_near_the_end_of_memory_is_told() -> None:
    (found,) = memory.little_headroom.judge(_run(allocated_peak_bytes=77 * GIB, reserved_peak_bytes=78 * GIB))
    assert found.seen == "96.2% of 80 GiB, 97.5% with the allocator's cache"


def test_a_cache_that_can_be_given_back_is_headroom() -> None:
    assert not list(memory.little_headroom.judge(_run(allocated_peak_bytes=50 * GIB, reserved_peak_bytes=78 * GIB)))
    assert not list(memory.little_headroom.judge(_run()))


def _emptied(calls: int | None = 8, malloc: int = 160, free: int = 160) -> Run:
    rank = Rank(
        rank=0,
        device="NVIDIA H200",
        steps=4,
        step_ms=60.0,
        window_ns=(0, 240_000_000),
        shares=StepShares(compute=0.7, launch=0.3),
        launches=LaunchStats(),
        allocations=Allocations(malloc_count=malloc, malloc_ns=30_000_000, free_count=free, free_ns=60_000_000),
        job=Job(empty_cache_calls=calls) if calls is not None else None,
    )
    return Run(ranks=(rank,), step_ms=60.0, shares=rank.shares)


def test_a_cache_emptied_each_step_costs_no_more_than_the_device_idles() -> None:
    (found,) = memory.empty_cache_in_loop.judge(_emptied())
    assert found.severity is Severity.WARNING
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(42.0)


def test_a_cache_emptied_each_step_is_likely_where_only_the_trace_tells() -> None:
    (found,) = memory.empty_cache_in_loop.judge(_emptied(calls=None))
    assert found.confidence == "likely"


def test_a_job_that_grows_or_retries_does_not_empty_its_cache() -> None:
    assert not list(memory.empty_cache_in_loop.judge(_emptied(free=0)))
    assert not list(memory.empty_cache_in_loop.judge(_emptied(calls=0)))


def test_unused_memory_is_an_info() -> None:
    assert memory.memory_to_spare.severity is Severity.INFO
    assert list(memory.memory_to_spare.judge(_run(reserved_peak_bytes=20 * GIB)))
    assert not list(memory.memory_to_spare.judge(_run(reserved_peak_bytes=60 * GIB)))
    assert not list(memory.memory_to_spare.judge(_run()))


STATE: dict[str, Any] = {"parameters_bytes": 2 * GIB, "gradients_bytes": 2 * GIB, "optimizer_bytes": 4 * GIB}


def test_sharding_a_small_model_is_not_needed_where_its_gathers_show() -> None:
    (found,) = memory.sharding_not_needed.judge(_run("fsdp", communication=0.2, **STATE))
    assert found.confidence == "likely"


def test_sharding_is_right_where_gathers_are_hidden_or_the_model_is_large() -> None:
    assert not list(memory.sharding_not_needed.judge(_run("fsdp", communication=0.02, **STATE)))
    assert not list(memory.sharding_not_needed.judge(_run("fsdp", world_size=8, communication=0.2, **STATE)))
    assert not list(memory.sharding_not_needed.judge(_run("ddp", communication=0.2, **STATE)))


FULL: dict[str, Any] = {"allocated_peak_bytes": 78 * GIB, "gradients_bytes": 15 * GIB, "optimizer_bytes": 30 * GIB}


def test_state_that_fills_each_gpu_should_be_shared_out() -> None:
    (found,) = memory.needs_sharding.judge(_run(**FULL))
    assert found.wanted == "22.5 GiB a rank, shared out"


def test_state_cannot_be_shared_out_alone_or_twice() -> None:
    assert not list(memory.needs_sharding.judge(_run(world_size=1, **FULL)))
    assert not list(memory.needs_sharding.judge(_run("fsdp", **FULL)))
    assert not list(memory.needs_sharding.judge(_run(**{**FULL, "optimizer_bytes": GIB})))
    assert not list(memory.needs_sharding.judge(msgspec.structs.replace(_run(**FULL), ranks=(Rank(rank=0),))))
