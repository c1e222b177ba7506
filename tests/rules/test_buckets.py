"""Rules on how DDP exchanges gradients."""

import msgspec
import pytest

from gpudoctor.facts.job import Job, ParallelSetup
from gpudoctor.facts.run import Collectives, Rank, StepShares
from gpudoctor.rules import buckets
from gpudoctor.run import Run

MIB = 2**20


def _run(
    starts: tuple[tuple[int, ...], ...] = (),
    *,
    size: int = 25 * MIB,
    forwards: int | None = 3,
    communication: float = 0.4,
    parallel: ParallelSetup | None = None,
    names: tuple[str, ...] = ("allreduce",),
) -> Run:
    """Each step of 100 ms has all-reduces of 1 ms, which begin at these milliseconds of it."""
    flat = [(step, at) for step, own in enumerate(starts) for at in own]
    rank = Rank(
        rank=0,
        steps=3,
        step_ms=100.0,
        shares=StepShares(compute=1 - communication, communication=communication),
        window_ns=(0, 300_000_000),
        communication_ns=120_000_000,
        optimizer_steps=3,
        forwards=forwards,
        collectives=(
            Collectives(
                group="0",
                backend="nccl",
                names=names,
                name=(0,) * len(flat),
                step=tuple(step for step, _ in flat),
                start_ns=tuple(step * 100_000_000 + at * 1_000_000 for step, at in flat),
                duration_ns=(1_000_000,) * len(flat),
                bytes=(size,) * len(flat),
            ),
        ),
        job=Job(parallel=parallel) if parallel else None,
    )
    return Run(world_size=2, ranks=(rank,), step_ms=100.0, shares=rank.shares)


def test_many_small_buckets_are_told_with_a_cap_for_them() -> None:
    (found,) = buckets.small_buckets.judge(_run((tuple(range(50, 80)),) * 3, size=4 * MIB))
    assert found.seen == "30 for 120 MiB of gradients, 4 MiB each"
    assert found.fix[0].command == "DistributedDataParallel(model, bucket_cap_mb=25)"


def test_buckets_of_the_default_cap_are_right() -> None:
    assert not list(buckets.small_buckets.judge(_run((tuple(range(50, 80)),) * 3)))


def test_small_buckets_that_compute_hides_are_no_matter() -> None:
    hidden = _run((tuple(range(50, 80)),) * 3, size=4 * MIB, communication=0.01)
    assert not list(buckets.small_buckets.judge(hidden))


def test_gathers_of_each_layer_are_no_buckets() -> None:
    layers = _run((tuple(range(50, 80)),) * 3, size=4 * MIB, names=("allgather",))
    assert not list(buckets.small_buckets.judge(layers))
    sharded = _run((tuple(range(50, 80)),) * 3, size=4 * MIB, parallel=ParallelSetup(kind="fsdp"))
    assert not list(buckets.small_buckets.judge(sharded))


def test_one_large_bucket_leaves_nothing_to_hide_behind() -> None:
    parallel = ParallelSetup(kind="ddp", bucket_sizes_bytes=(200 * MIB,))
    (found,) = buckets.one_bucket.judge(_run(((60,),) * 3, parallel=parallel))
    assert found.fix[0].command == "DistributedDataParallel(model, bucket_cap_mb=25)"
    assert found.cost is not None
    assert found.cost.share_of_step == pytest.approx(0.4)


def test_one_small_bucket_is_the_quickest_for_a_small_model() -> None:
    parallel = ParallelSetup(kind="ddp", bucket_sizes_bytes=(2 * MIB,))
    assert not list(buckets.one_bucket.judge(_run(((60,),) * 3, parallel=parallel)))
    assert not list(buckets.one_bucket.judge(_run(((60, 62, 64),) * 3)))


FIND = ParallelSetup(kind="ddp", find_unused_parameters=True, unused_parameters=0)


def test_looking_for_unused_parameters_where_there_are_none_is_needless() -> None:
    (found,) = buckets.needless_find_unused.judge(_run(parallel=FIND))
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    "parallel",
    [
        msgspec.structs.replace(FIND, unused_parameters=3),
        msgspec.structs.replace(FIND, unused_parameters=None),
        msgspec.structs.replace(FIND, static_graph=True),
        msgspec.structs.replace(FIND, find_unused_parameters=False),
    ],
    ids=["needed", "not counted", "looks once", "off"],
)
def test_looking_for_unused_parameters_is_right_or_unknown(parallel: ParallelSetup) -> None:
    assert not list(buckets.needless_find_unused.judge(_run(parallel=parallel)))


EACH_PASS = ((20, 22, 45, 47, 70, 72, 95, 97),) * 3
LAST_PASS = ((90, 92, 94, 96),) * 3


def test_an_exchange_in_each_of_several_passes_is_wasted() -> None:
    (found,) = buckets.all_reduce_every_microstep.judge(_run(EACH_PASS, forwards=12))
    assert found.cost is not None
    assert found.cost.share_of_step == pytest.approx(0.3)


def test_two_steps_of_one_bucket_a_pass_are_enough_to_tell() -> None:
    run = _run(((20, 45, 70, 95),) * 2, forwards=12)
    assert list(buckets.all_reduce_every_microstep.judge(run))


def test_an_exchange_in_the_last_pass_alone_is_right() -> None:
    assert not list(buckets.all_reduce_every_microstep.judge(_run(LAST_PASS, forwards=12)))


def test_one_pass_a_step_is_no_accumulation() -> None:
    assert not list(buckets.all_reduce_every_microstep.judge(_run(EACH_PASS)))
    assert not list(buckets.all_reduce_every_microstep.judge(_run(EACH_PASS, forwards=None)))
