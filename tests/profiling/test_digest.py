"""What one rank's record says of the recorded traces: the facts the rules on their planted faults stand on."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from gpudoctor.facts.run import KernelStats, LoaderStats, Rank
from gpudoctor.profiling.digest import digest

RECORDED = Path(__file__).parent.parent / "recorded/traces"


@cache
def recorded(name: str, rank: int = 0) -> Rank:
    return digest(RECORDED / f"{name}.rank{rank}.json.gz")


def kernels(name: str) -> KernelStats:
    stats = recorded(name).kernels
    assert stats is not None
    return stats


def loader(name: str) -> LoaderStats:
    stats = recorded(name).loader
    assert stats is not None
    return stats


def test_a_record_is_kilobytes_and_comes_back_from_json() -> None:
    record = recorded("ddp-accum-sync")
    text = msgspec.json.encode(record)
    assert len(text) < 100_000
    assert msgspec.json.decode(text, type=Rank) == record


def test_the_header_names_rank_device_and_job() -> None:
    record = recorded("ddp-straggler", 1)
    assert (record.rank, record.world_size, record.backend) == (1, 2, "gloo")
    assert (record.device, record.device_index, record.compute_capability) == ("NVIDIA H200", 0, "9.0")
    assert record.device_memory_bytes == 150109880320


def test_busy_and_idle_time_are_the_window() -> None:
    record = recorded("item-sync")
    assert record.window_ns is not None
    assert record.shares is not None
    assert record.busy_ns is not None
    window = record.window_ns[1] - record.window_ns[0]
    assert record.busy_ns / window == pytest.approx(record.shares.busy)


def test_gemms_on_the_plain_units_are_told_from_tensor_cores() -> None:
    plain, fast = kernels("fp32-no-tf32"), kernels("healthy")
    assert plain.plain_gemm_ns == plain.gemm_ns > 0.8 * plain.duration_ns
    assert fast.tensor_core_gemm_ns == fast.gemm_ns > 0
    assert fast.unaligned_gemm_ns == plain.unaligned_gemm_ns == 0


def test_gemms_that_cannot_load_whole_words_are_unaligned() -> None:
    assert kernels("unaligned-vocab").unaligned_gemm_ns > 0.5 * kernels("unaligned-vocab").duration_ns


def test_optimizer_kernels_are_told_by_their_launch_and_name() -> None:
    fused, single = kernels("healthy"), kernels("unfused-adamw")
    assert (fused.optimizer_count, fused.optimizer_fused_count, fused.optimizer_foreach_count) == (30, 27, 3)
    assert (single.optimizer_count, single.optimizer_fused_count, single.optimizer_foreach_count) == (2448, 0, 0)


def test_attention_without_a_fused_kernel_shows_softmax_and_none_of_it() -> None:
    assert kernels("math-attention").attention_ns == 0
    assert kernels("math-attention").softmax_ns > 5 * kernels("healthy").softmax_ns
    assert kernels("healthy").attention_ns > 0


def test_copies_are_told_by_direction_and_memory() -> None:
    copies = {(copy.direction, copy.pageable): copy for copy in recorded("pageable-h2d").copies}
    steps = recorded("pageable-h2d").steps or 0
    assert copies["HtoD", True].bytes == pytest.approx(79e6 * steps, rel=0.03)
    assert copies["HtoD", True].exposed_ns > 0.2 * 79e6 * steps
    assert [copy.pageable for copy in recorded("healthy").copies] == [False]


def test_a_checkpoint_shows_as_pageable_copies_to_the_host() -> None:
    written = next(copy for copy in recorded("checkpoint-stall").copies if copy.direction == "DtoH")
    assert written.pageable
    assert written.bytes == 2_008_661_400


def test_a_synchronising_call_costs_the_idle_time_it_opens_not_what_follows() -> None:
    """40 ms of sleep follow each `.item()` of log-stall; they are no cost of the call."""
    (item,) = recorded("item-sync").syncs
    (log,) = recorded("log-stall").syncs
    assert (item.name, item.call, item.count) == ("aten::_local_scalar_dense", "cudaStreamSynchronize", 24)
    assert item.idle_ns / 3 == pytest.approx(1.08e6, rel=0.05)
    assert log.count == 3
    assert log.idle_ns / 3 < 0.5e6


def test_step_counters_of_the_optimizer_are_no_synchronising_calls() -> None:
    assert recorded("unfused-adamw").syncs == ()
    assert recorded("healthy").syncs == ()


def test_allocator_calls_are_counted() -> None:
    emptied, steady = recorded("empty-cache").allocations, recorded("healthy").allocations
    assert emptied is not None
    assert steady is not None
    assert (emptied.malloc_count, emptied.free_count) == (168, 168)
    assert (steady.malloc_count, steady.free_count) == (0, 0)


def test_launches_tell_whether_the_host_is_ahead() -> None:
    ahead, behind = recorded("healthy").launches, recorded("launch-bound").launches
    assert ahead is not None
    assert behind is not None
    assert (ahead.median_delay_ns or 0) > 10e6
    assert (behind.median_delay_ns or 0) < 0.1e6


def test_the_loader_is_named_and_timed() -> None:
    assert loader("slow-loader").kind == "_SingleProcessDataLoaderIter"
    assert loader("few-workers").kind == "_MultiProcessingDataLoaderIter"
    assert loader("slow-loader").count == 3
    assert loader("slow-loader").duration_ns / 3 == pytest.approx(195e6, rel=0.05)


def test_several_backward_passes_a_step_show_in_the_forwards() -> None:
    assert (recorded("ddp-accum-sync").forwards, recorded("ddp-accum-sync").optimizer_steps) == (12, 3)
    assert (recorded("ddp-gloo").forwards, recorded("ddp-gloo").optimizer_steps) == (3, 3)
    assert recorded("healthy").forwards is None


def test_gaps_say_what_held_the_device_back_and_what_came_before() -> None:
    longest = recorded("log-stall").gaps[0]
    assert (longest.cause, longest.after) == ("host", "aten::item")
    assert longest.duration_ns == pytest.approx(41e6, rel=0.02)
    waiting = recorded("slow-loader").gaps[0]
    assert waiting.cause == "loader"
    assert waiting.during == "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize("name", ["healthy", "launch-bound", "ddp-gloo"])
def test_one_step_is_shown_without_a_gap_and_in_few_pieces(name: str) -> None:
    record = recorded(name)
    step = record.each_step[len(record.each_step) // 2]
    assert 1 <= len(record.timeline) <= 600
    assert sum(segment.duration_ns for segment in record.timeline) == step.end_ns - step.start_ns


def test_gloo_collectives_are_listed_by_step() -> None:
    (series,) = recorded("ddp-gloo").collectives
    assert (series.backend, series.ranks, series.names) == ("gloo", (0, 1), ("allreduce",))
    assert series.step == (8,) * 4 + (9,) * 4 + (10,) * 4
    assert all(0 <= shown <= whole for shown, whole in zip(series.exposed_ns, series.duration_ns, strict=True))
