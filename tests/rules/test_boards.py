"""Which boards a job started here will use."""

import pytest

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus, MigInstance
from gpudoctor.facts.topology import GpuPair, Topology
from gpudoctor.rules.boards import busy, linked, used, used_pairs
from gpudoctor.snapshot import Snapshot


def _machine(visible: str | None, *names: str, order: str | None = None) -> Snapshot:
    variables = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    return Snapshot(
        gpus=Gpus(
            boards=tuple(
                Gpu(index=index, name=name, uuid=f"GPU-{index}abc", mig_instances=(MigInstance(uuid=f"MIG-{index}"),))
                for index, name in enumerate(names or ("H100",) * 4)
            )
        ),
        environment=Environment(variables={name: value for name, value in variables.items() if value is not None}),
    )


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("1,9,2", [1]),
        ("1,1", [1]),
        ("GPU-3", [3]),
        ("GPU-3abc,GPU-0", [3, 0]),
        ("MIG-2", [2]),
        ("nonsense", []),
    ],
)
def test_boards_by_visible_devices(visible: str | None, indices: list[int]) -> None:
    assert [board.index for board in used(_machine(visible))] == indices


def test_numbers_of_unlike_boards_mean_a_board_only_in_the_order_of_the_bus() -> None:
    mixed = ("T400", "RTX 4090")
    assert used(_machine("1", *mixed)) == ()
    assert [board.index for board in used(_machine("1", *mixed, order="PCI_BUS_ID"))] == [1]
    assert len(used(_machine("0,1", *mixed))) == 2


def test_pairs_of_those_boards_and_all_of_a_matrix_alone() -> None:
    pairs = tuple(GpuPair(first=first, second=second) for first, second in ((0, 1), (0, 2), (1, 2)))
    topology = Topology(pairs=pairs)
    assert used_pairs(Snapshot(topology=topology)) == list(pairs)
    machine = _machine("0,2")
    assert used_pairs(Snapshot(topology=topology, gpus=machine.gpus, environment=machine.environment)) == [pairs[1]]


def test_nvlink_by_its_path_or_by_the_drivers_word() -> None:
    assert linked(GpuPair(first=0, second=1, path="NV18"))
    assert linked(GpuPair(first=0, second=1, path="PHB", nvlink=True))
    assert not linked(GpuPair(first=0, second=1, path="NODE"))


def test_busy_needs_both_facts() -> None:
    assert busy(Gpu(index=0, performance_state=0, utilization_ratio=0.9))
    assert not busy(Gpu(index=0, performance_state=0))
    assert not busy(Gpu(index=0, performance_state=8, utilization_ratio=0.9))
