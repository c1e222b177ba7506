"""The processes of a table as one job."""

from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus
from gpudoctor.readers.job import run_of
from gpudoctor.rules import sharing
from gpudoctor.snapshot import Snapshot

MIB = 2**20


def _machine(*rows: tuple[int, int, int], name: str = "python") -> Snapshot:
    boards = sorted({gpu for gpu, _, _ in rows})
    return Snapshot(
        gpus=Gpus(
            source="text",
            boards=tuple(
                Gpu(
                    index=index,
                    processes=tuple(
                        GpuProcess(pid=pid, memory_bytes=held * MIB, name=name)
                        for gpu, pid, held in rows
                        if gpu == index
                    ),
                )
                for index in boards
            ),
        )
    )


def _places(machine: Snapshot) -> list[str]:
    run = run_of(machine)
    return [] if run is None else [evidence.where for evidence in sharing.stray_context.judge(run)]


def test_contexts_of_other_ranks_on_the_first_board_are_found() -> None:
    assert _places(_machine((5, 10, 2885), (5, 11, 1387), (6, 11, 2889))) == ["GPU 5"]


def test_one_process_a_board_is_nothing() -> None:
    assert _places(_machine((0, 10, 2885), (1, 11, 2889))) == []


def test_a_rank_whose_own_board_is_cut_off_is_no_second_owner() -> None:
    run = run_of(_machine((0, 10, 26000), (0, 11, 871), (0, 12, 871), (1, 11, 26000)))
    assert run is not None
    assert list(sharing.shared_gpu.judge(run)) == []


def test_one_process_on_all_boards_is_data_parallel() -> None:
    run = run_of(_machine((0, 10, 11000), (1, 10, 3500), (2, 10, 3500)))
    assert run is not None
    assert len(list(sharing.data_parallel.judge(run))) == 1


def test_without_processes_there_is_no_job() -> None:
    assert run_of(Snapshot()) is None
    assert run_of(Snapshot(gpus=Gpus(boards=(Gpu(index=0, processes=()),)))) is None
