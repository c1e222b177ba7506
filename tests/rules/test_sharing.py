"""Rules on who holds memory on which GPU."""

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.job import Job, ParallelSetup
from gpudoctor.facts.run import LaunchStats, Rank
from gpudoctor.facts.watch import Holder, Watch, WatchedGpu
from gpudoctor.rules import sharing
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

GIB = 2**30


def _run(*boards: dict[int, float], job: Job | None = None, mig: bool = False) -> Run:
    """Each board: rank → GiB that it holds there."""
    ranks = {rank for board in boards for rank in board}
    return Run(
        ranks=tuple(Rank(rank=rank, device="NVIDIA H200", launches=LaunchStats(), job=job) for rank in sorted(ranks)),
        watch=Watch(
            gpus=tuple(
                WatchedGpu(
                    index=index,
                    holders=tuple(
                        Holder(pid=100 + rank, rank=rank, peak_bytes=int(held * GIB)) for rank, held in board.items()
                    ),
                )
                for index, board in enumerate(boards)
            )
        ),
        machine=Snapshot(gpus=Gpus(boards=tuple(Gpu(index=index, mig_mode=mig) for index in range(len(boards))))),
    )


def test_a_first_gpu_fuller_than_the_others_is_told() -> None:
    (found,) = sharing.gpu0_memory_imbalance.judge(_run({0: 30}, {1: 20}, {2: 20}, {3: 20}))
    assert (found.where, found.seen) == ("GPU 0", "30 GiB, 1.50 × the median of the others")


def test_a_little_more_on_the_first_gpu_is_normal() -> None:
    assert not list(sharing.gpu0_memory_imbalance.judge(_run({0: 22}, {1: 20})))
    assert not list(sharing.gpu0_memory_imbalance.judge(_run({0: 0.9}, {1: 0.5})))
    assert not list(sharing.gpu0_memory_imbalance.judge(_run({0: 30})))


def test_contexts_of_other_ranks_on_a_gpu_are_strays() -> None:
    (found,) = sharing.stray_context.judge(_run({0: 20, 1: 0.5, 2: 0.5}, {1: 20}, {2: 20}))
    assert (found.where, found.seen) == ("GPU 0", "rank 1: 512 MiB, rank 2: 512 MiB")


def test_peer_contexts_of_nothing_are_harmless() -> None:
    assert not list(sharing.stray_context.judge(_run({0: 20, 1: 0}, {1: 20, 0: 0})))


def test_a_model_spread_over_gpus_of_its_own_is_no_stray() -> None:
    assert not list(sharing.stray_context.judge(_run({0: 20}, {0: 10}, {1: 20}, {1: 10})))


DATA_PARALLEL = Job(parallel=ParallelSetup(kind="data_parallel"))


def test_data_parallel_is_told_on_several_gpus() -> None:
    (found,) = sharing.data_parallel.judge(_run({0: 20}, {0: 15}, job=DATA_PARALLEL))
    assert found.confidence == "certain"
    (found,) = sharing.data_parallel.judge(_run({0: 20}, {0: 15}))
    assert found.confidence == "likely"


def test_data_parallel_does_nothing_on_one_gpu_or_none() -> None:
    assert not list(sharing.data_parallel.judge(_run({0: 20}, job=DATA_PARALLEL)))
    assert not list(sharing.data_parallel.judge(Run(ranks=(Rank(rank=0, device="cpu", job=DATA_PARALLEL),))))


def test_a_model_spread_by_hand_is_no_data_parallel() -> None:
    assert not list(sharing.data_parallel.judge(_run({0: 20}, {0: 15}, job=Job())))


def test_two_ranks_on_one_gpu_are_told() -> None:
    (found,) = sharing.shared_gpu.judge(_run({0: 20, 1: 20}))
    assert (found.where, found.seen, found.confidence) == ("GPU 0", "0, 1", "certain")


def test_ranks_on_instances_of_one_board_share_nothing() -> None:
    assert not list(sharing.shared_gpu.judge(_run({0: 20, 1: 20}, mig=True)))
    assert not list(sharing.shared_gpu.judge(_run({0: 20}, {1: 20})))


def _traced(backend: str) -> Run:
    return Run(
        ranks=tuple(
            Rank(rank=rank, pid=rank, device="NVIDIA H200", device_index=0, backend=backend, launches=LaunchStats())
            for rank in range(2)
        )
    )


def test_device_numbers_tell_for_gloo_alone() -> None:
    """A launcher may show each rank of an NCCL job its own GPU as number 0."""
    (found,) = sharing.shared_gpu.judge(_traced("gloo"))
    assert found.confidence == "likely"
    assert not list(sharing.shared_gpu.judge(_traced("nccl")))
