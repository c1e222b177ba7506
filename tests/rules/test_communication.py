"""Rules on communication between ranks."""

import msgspec
import pytest

from gpudoctor.facts.job import Job
from gpudoctor.facts.run import Arrival, Collectives, LaunchStats, Link, Rank, StepShares
from gpudoctor.findings import Severity
from gpudoctor.rules import communication
from gpudoctor.run import Run

EXPOSED = StepShares(compute=0.5, communication=0.4, host=0.1)


def _run(ranks: int = 2, shares: StepShares = EXPOSED, device: str = "NVIDIA H200", backend: str = "nccl") -> Run:
    series = Collectives(group="0", backend=backend, names=("allreduce",), name=(0,), step=(1,))
    return Run(
        world_size=ranks,
        step_ms=100.0,
        shares=shares,
        ranks=tuple(
            Rank(
                rank=number,
                device=device,
                world_size=ranks,
                backend=backend,
                steps=2,
                step_ms=100.0,
                shares=shares,
                window_ns=(0, 200_000_000),
                communication_ns=100_000_000,
                hidden_communication_ns=20_000_000,
                launches=None if device == "cpu" else LaunchStats(),
                collectives=(series,),
            )
            for number in range(ranks)
        ),
    )


def test_communication_in_plain_view_is_an_error_from_thirty_per_cent() -> None:
    (found,) = communication.exposed_communication.judge(_run())
    assert found.severity is Severity.ERROR
    assert found.seen == "40% of the step, 40 of 100 ms; 20% of all communication is hidden"
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(60.0)


def test_communication_in_plain_view_counts_on_cpu_jobs_too() -> None:
    (found,) = communication.exposed_communication.judge(
        _run(shares=StepShares(compute=0.8, communication=0.2), device="cpu", backend="gloo")
    )
    assert found.severity is Severity.WARNING


def test_hidden_communication_is_no_matter() -> None:
    assert not list(communication.exposed_communication.judge(_run(shares=StepShares(compute=1.0))))
    assert not list(communication.exposed_communication.judge(Run(ranks=(Rank(rank=0),))))


def test_waiting_for_a_rank_that_is_named_is_no_transfer() -> None:
    arrivals = (
        Arrival(rank=0, matched=9, contested=3, wait_ms=35.0, exposed_wait_ms=35.0),
        Arrival(rank=1, matched=9, contested=3, last=3, caused_ms=35.0, extra_ms={"host": 35.0}),
    )
    run = msgspec.structs.replace(_run(), arrivals=arrivals)
    (found,) = communication.exposed_communication.judge(run)
    assert found.where == "rank 1"  # the other one only waits


def test_waiting_for_a_rank_whose_cpu_others_take_is_no_transfer() -> None:
    run = _run(device="cpu", backend="gloo")
    one, other = run.ranks
    taken = msgspec.structs.replace(other, job=Job(cpu_wait_ms=35.0))
    (found,) = communication.exposed_communication.judge(msgspec.structs.replace(run, ranks=(one, taken)))
    assert found.where == "rank 1"  # rank 0 waits for it


def _link(speed: float | None, group: str = "0", first: int = 0, large: int = 20, transfer_ms: float = 20.0) -> Link:
    return Link(
        group=group,
        ranks=(first, first + 1),
        name="allreduce",
        count=20,
        transfer_ms=transfer_ms,
        bus_bandwidth_gb_s=speed,
        large_count=large,
    )


def test_a_link_far_below_its_data_sheet_is_slow() -> None:
    (found,) = communication.slow_link.judge(msgspec.structs.replace(_run(), links=(_link(8.0),)))
    assert found.where == "ranks 0, 1"
    assert "450 GB/s" in found.wanted


@pytest.mark.parametrize("link", [_link(120.0), _link(None), _link(8.0, large=0), _link(8.0, transfer_ms=2.0)])
def test_a_link_that_is_quick_or_unknown_or_little_used_is_not(link: Link) -> None:
    assert not list(communication.slow_link.judge(msgspec.structs.replace(_run(), links=(link,))))


def test_a_board_without_nvlink_has_no_figure_here() -> None:
    run = msgspec.structs.replace(_run(device="NVIDIA GeForce RTX 4090"), links=(_link(8.0),))
    assert not list(communication.slow_link.judge(run))


def test_a_link_slower_than_the_groups_alike_is_slow() -> None:
    links = tuple(_link(20.0 if number else 5.0, str(number), 2 * number) for number in range(4))
    run = msgspec.structs.replace(_run(8, device="NVIDIA L40S"), links=links)
    (found,) = communication.slow_link.judge(run)
    assert (found.where, found.source) == ("ranks 0, 1", "measured here")


def test_gloo_for_tensors_of_gpus_is_told() -> None:
    (found,) = communication.gloo_for_gpu_tensors.judge(_run(backend="gloo"))
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(60.0)


def test_gloo_on_cpus_is_right_and_so_is_nccl_on_gpus() -> None:
    assert not list(communication.gloo_for_gpu_tensors.judge(_run(device="cpu", backend="gloo")))
    assert not list(communication.gloo_for_gpu_tensors.judge(_run()))
    assert not list(communication.gloo_for_gpu_tensors.judge(_run(shares=StepShares(compute=1.0), backend="gloo")))
