"""Rules on PCIe links and on copies between boards."""

import msgspec
import pytest

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.topology import AcsBridge, GpuPair, Topology
from gpudoctor.findings import Evidence, Rule
from gpudoctor.rules.pcie import (
    acs_redirects_p2p,
    iommu_translates,
    narrow_pcie_link,
    pcie_replays,
    slow_pcie_link,
)
from gpudoctor.snapshot import Snapshot

METAL, GUEST = Host(virtual_machine=False), Host(virtual_machine=True)
PAIR = GpuPair(first=0, second=1, path="PIX", peer_access=True)
PORTS = (
    AcsBridge(bus_id="0000:02:00.0", gpus=(0,), port="downstream"),
    AcsBridge(bus_id="0000:02:01.0", gpus=(1,), port="downstream"),
)


def _said(asked: Rule[Snapshot], board: Gpu, host: Host | None = METAL) -> list[Evidence]:
    return list(asked.judge(Snapshot(gpus=Gpus(boards=(board,)), host=host)))


def _two(topology: Topology, host: Host | None = METAL) -> Snapshot:
    return Snapshot(gpus=Gpus(boards=(Gpu(index=0), Gpu(index=1))), topology=topology, host=host)


# PCI001


def test_a_link_narrower_than_board_and_slot_is_told() -> None:
    (found,) = _said(narrow_pcie_link, Gpu(index=3, pcie_width=8, pcie_width_max=16, pcie_slot_width=16))
    assert (found.where, found.seen, found.wanted) == ("GPU 3", "x8", "x16")
    assert _said(narrow_pcie_link, Gpu(index=0, pcie_width=8, pcie_width_max=16), host=None)


@pytest.mark.parametrize(
    "board",
    [
        Gpu(index=0, pcie_width=8, pcie_width_max=16, pcie_slot_width=8),
        Gpu(index=0, pcie_width=16, pcie_width_max=16, pcie_slot_width=16),
        Gpu(index=0, pcie_width=8, pcie_width_max=8, pcie_slot_width=16),
        Gpu(index=0, pcie_width=8),
        Gpu(index=0, pcie_width_max=16),
        Gpu(index=0, pcie_width=8, pcie_width_max=16, name="NVIDIA GeForce RTX 4090"),
        Gpu(index=0, pcie_width=8, pcie_width_max=16, name="NVIDIA RTX 3000 Ada Generation Laptop GPU"),
        Gpu(index=0, pcie_width=1, pcie_width_max=16, name="NVIDIA GH200 480GB", memory_node=1),
    ],
)
def test_narrow_pcie_link_is_quiet_where_no_lane_is_missing_or_the_board_rests(board: Gpu) -> None:
    assert _said(narrow_pcie_link, board) == []


def test_narrow_pcie_link_is_quiet_in_a_virtual_machine() -> None:
    assert _said(narrow_pcie_link, Gpu(index=0, pcie_width=8, pcie_width_max=16), GUEST) == []


# PCI002

SLOW = Gpu(index=0, pcie_generation=1, pcie_generation_max=4, performance_state=0, utilization_ratio=0.95)


def test_a_low_generation_under_load_is_told() -> None:
    (found,) = _said(slow_pcie_link, SLOW)
    assert (found.seen, found.wanted) == ("1", "4")


@pytest.mark.parametrize(
    "fields",
    [
        {"utilization_ratio": 0.0},
        {"utilization_ratio": None},
        {"performance_state": 8},
        {"performance_state": None},
        {"pcie_generation": 4},
        {"pcie_generation": None},
        {"pcie_generation_max": None},
    ],
)
def test_a_low_generation_at_idle_or_of_unknown_load_is_no_fault(fields: dict[str, object]) -> None:
    assert _said(slow_pcie_link, msgspec.structs.replace(SLOW, **fields)) == []


# PCI003


def test_replays_are_judged_by_their_rate_never_by_their_count() -> None:
    (found,) = _said(pcie_replays, Gpu(index=0, pcie_replays=400, pcie_replays_per_s=900.0))
    assert found.seen == "900 a second"
    assert _said(pcie_replays, Gpu(index=0, pcie_replays=100_000)) == []
    assert _said(pcie_replays, Gpu(index=0, pcie_replays=3, pcie_replays_per_s=20.0)) == []


# PCI004


def test_a_switch_that_redirects_between_two_boards_is_told_with_what_switches_it_off() -> None:
    (found,) = acs_redirects_p2p.judge(_two(Topology(pairs=(PAIR,), acs_bridges=PORTS)))
    assert found.seen == "redirects: 0000:02:00.0 above GPU 0; 0000:02:01.0 above GPU 1"
    assert found.fix[1].command == (
        "for bridge in 0000:02:00.0 0000:02:01.0; do sudo setpci -s $bridge ECAP_ACS+6.w=0; done"
    )


def test_a_root_port_redirects_only_where_the_iommu_translates() -> None:
    ports = (AcsBridge(bus_id="0000:00:01.0", gpus=(0,), port="root"),)
    pair = msgspec.structs.replace(PAIR, path="PHB")
    for mode, count in (("translate", 1), ("passthrough", 0), (None, 0)):
        machine = _two(Topology(pairs=(pair,), acs_bridges=ports, iommu_mode=mode))
        assert len(list(acs_redirects_p2p.judge(machine))) == count


@pytest.mark.parametrize(
    ("pair", "bridges"),
    [
        (msgspec.structs.replace(PAIR, path="NV4"), PORTS),
        (msgspec.structs.replace(PAIR, nvlink=True), PORTS),
        (msgspec.structs.replace(PAIR, peer_access=False), PORTS),
        (msgspec.structs.replace(PAIR, path="SYS"), PORTS),
        (PAIR, (AcsBridge(bus_id="0000:00:01.0", gpus=(0, 1), port="root"),)),
        (PAIR, ()),
        (PAIR, None),
    ],
)
def test_acs_is_no_matter_where_no_copy_passes_it(pair: GpuPair, bridges: tuple[AcsBridge, ...] | None) -> None:
    assert list(acs_redirects_p2p.judge(_two(Topology(pairs=(pair,), acs_bridges=bridges)))) == []


def test_acs_is_no_matter_in_a_virtual_machine_or_with_one_board() -> None:
    assert list(acs_redirects_p2p.judge(_two(Topology(pairs=(PAIR,), acs_bridges=PORTS), GUEST))) == []
    assert list(acs_redirects_p2p.judge(_two(Topology(pairs=(), acs_bridges=PORTS)))) == []


def test_bridges_of_a_paste_are_likely_those_above_the_boards() -> None:
    bridges = (AcsBridge(bus_id="bridge 1"), AcsBridge(bus_id="bridge 2"))
    pair = GpuPair(first=0, second=1, path="PHB")
    (found,) = acs_redirects_p2p.judge(Snapshot(topology=Topology(pairs=(pair,), acs_bridges=bridges)))
    assert (found.seen, found.confidence) == ("2 redirect peer requests", "likely")


# PCI005


def test_an_iommu_that_translates_copies_between_boards_is_told() -> None:
    (found,) = iommu_translates.judge(_two(Topology(pairs=(PAIR,), iommu_mode="translate")))
    assert found.wanted == "off, or passthrough (iommu=pt)"


@pytest.mark.parametrize(
    ("topology", "host"),
    [
        (Topology(pairs=(PAIR,), iommu_mode="translate"), GUEST),
        (Topology(pairs=(PAIR,), iommu_mode="passthrough"), METAL),
        (Topology(pairs=(PAIR,)), METAL),
        (Topology(pairs=(), iommu_mode="translate"), METAL),
        (Topology(iommu_mode="translate"), METAL),
        (Topology(pairs=(msgspec.structs.replace(PAIR, path="NV18"),), iommu_mode="translate"), METAL),
        (Topology(pairs=(msgspec.structs.replace(PAIR, peer_access=False),), iommu_mode="translate"), METAL),
    ],
)
def test_the_iommu_is_no_matter_where_no_copy_passes_it(topology: Topology, host: Host) -> None:
    assert list(iommu_translates.judge(_two(topology, host))) == []
