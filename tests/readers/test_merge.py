"""Several readers, one machine."""

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.readers.merge import merged
from gpudoctor.snapshot import Snapshot


def _gpus(*boards: Gpu) -> Snapshot:
    return Snapshot(gpus=Gpus(boards=boards, source="text"))


def _boards(*snapshots: Snapshot) -> tuple[Gpu, ...]:
    gpus = merged(snapshots).gpus
    assert gpus is not None
    return gpus.boards


def test_the_first_that_tells_wins_field_by_field() -> None:
    one = Snapshot(driver=Driver(module_version="570.10"))
    other = Snapshot(driver=Driver(module_version="570", cuda_version="12.8"))
    assert merged([one, other]).driver == Driver(module_version="570.10", cuda_version="12.8")


def test_lists_of_packages_and_variables_are_put_together() -> None:
    one = Snapshot(
        packages=Packages(installed=(Package(name="a", import_error="broken"),)),
        environment=Environment(variables={"A": "1"}),
    )
    other = Snapshot(
        packages=Packages(installed=(Package(name="a", version="1"), Package(name="b", version="2"))),
        environment=Environment(variables={"A": "2", "B": "2"}),
    )
    both = merged([one, other])
    assert both.packages == Packages(
        installed=(Package(name="a", version="1", import_error="broken"), Package(name="b", version="2"))
    )
    assert both.environment == Environment(variables={"A": "1", "B": "2"})


def test_a_name_that_is_cut_off_gives_way_to_a_whole_one() -> None:
    cut = _gpus(Gpu(index=0, name="NVIDIA GeForce ...", temperature_c=40))
    whole = _gpus(Gpu(index=0, name="NVIDIA GeForce RTX 3060"))
    assert _boards(cut, whole) == (Gpu(index=0, name="NVIDIA GeForce RTX 3060", temperature_c=40),)


def test_boards_meet_by_bus_id_before_index() -> None:
    one = _gpus(Gpu(index=0, pci_bus_id="A", name="x"), Gpu(index=1, pci_bus_id="B", name="x"))
    other = _gpus(Gpu(index=0, pci_bus_id="B", row_remap_pending=True))
    assert [board.row_remap_pending for board in _boards(one, other)] == [None, True]


def test_a_nameless_part_joins_the_only_board_and_no_board_of_several() -> None:
    part = _gpus(Gpu(index=0, row_remap_pending=True))
    assert _boards(_gpus(Gpu(index=0, name="x")), part) == (Gpu(index=0, name="x", row_remap_pending=True),)
    several = _boards(part, _gpus(Gpu(index=0, name="x"), Gpu(index=1, name="x")))
    assert sorted(bool(board.row_remap_pending) for board in several) == [False, False, True]


def test_a_lost_board_is_not_the_one_that_tells_of_itself() -> None:
    lost = _gpus(Gpu(index=0, pci_bus_id="A", lost=True))
    assert len(_boards(_gpus(Gpu(index=0, row_remap_pending=True)), lost)) == 2


def test_nothing_makes_an_empty_snapshot() -> None:
    assert merged([]) == Snapshot()
