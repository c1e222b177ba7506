"""How GPUs are linked, on machines of several kinds."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudoctor.facts.topology import Topology
from gpudoctor.probes import topology
from gpudoctor.probes.nvml import Nvml
from gpudoctor.probes.system import System
from tests.probes.nvml_machines import LOST, Board, Machine, Refuses, fields, geforce, h100


@pytest.fixture
def bare(tmp_path: Path) -> System:
    return System(root=tmp_path, environ={})


def _read(machine: Machine, system: System) -> Topology:
    return topology.topology(Nvml(machine), system)


def _bridged(index: int, peer: int, links: int = 4) -> Board:
    """A board of a pair that a bridge joins."""
    far = SimpleNamespace(busId=f"00000000:{0x10 + peer:02X}:00.0".encode())
    return h100(index).but(FieldValues=fields(f91=links), NvLinkRemoteDeviceType=0, NvLinkRemotePciInfo=far)


def test_eight_boards_on_switches(bare: System) -> None:
    machine = Machine(*map(h100, range(8)))
    told = _read(machine, bare)
    assert len(told.nvlinks or ()) == 8 * 18
    assert {pair.path for pair in told.pairs or ()} == {"NV18"}
    assert len(told.pairs or ()) == 28
    assert all(pair.peer_access and pair.nvlink and pair.peer_status == "ok" for pair in told.pairs or ())
    assert {link.peer_kind for link in told.nvlinks or ()} == {"switch"}
    assert told.unread == {}
    # Once a board, not once a pair.
    assert machine.asked.count("nvmlDeviceGetNvLinkRemoteDeviceType") == 8
    assert "nvmlDeviceGetNvLinkRemotePciInfo" not in machine.asked


def test_bridged_pairs(bare: System) -> None:
    boards = [_bridged(0, 1), _bridged(1, 0), _bridged(2, 3), _bridged(3, 2)]
    told = _read(Machine(*boards, ancestor=40), bare)
    paths = {(pair.first, pair.second): pair.path for pair in told.pairs or ()}
    assert paths == {(0, 1): "NV4", (2, 3): "NV4", (0, 2): "NODE", (0, 3): "NODE", (1, 2): "NODE", (1, 3): "NODE"}


def test_fewer_links_on_one_side_are_what_a_pair_has(bare: System) -> None:
    short = h100(1).but(NvLinkState=lambda link: int(link < 10))
    told = _read(Machine(h100(0), short), bare)
    assert told.pairs is not None
    assert told.pairs[0].path == "NV10"
    down = [link for link in told.nvlinks or () if link.gpu == 1 and not link.active]
    assert len(down) == 8
    assert down[0].crc_errors is None


def test_nvlink_whose_far_ends_match_no_board_is_nvlink_all_the_same(bare: System) -> None:
    boards = [_bridged(0, 0x40), _bridged(1, 0x41)]
    told = _read(Machine(*boards, ancestor=30), bare)
    assert told.pairs is not None
    assert (told.pairs[0].path, told.pairs[0].nvlink) == ("PHB", True)


def test_boards_without_nvlink(bare: System) -> None:
    told = _read(Machine(geforce(), geforce(), ancestor=30, peers=1), bare)
    assert told.nvlinks is None
    assert told.pairs is not None
    pair = told.pairs[0]
    assert (pair.path, pair.nvlink, pair.peer_access, pair.peer_status) == (
        "PHB",
        False,
        False,
        "chipset_not_supported",
    )


def test_a_lost_board_is_in_no_pair(bare: System) -> None:
    gone = h100(1).but(NvLinkState=Refuses(LOST))
    told = _read(Machine(h100(0), gone, Refuses(LOST), h100(3)), bare)
    assert [(pair.first, pair.second) for pair in told.pairs or ()] == [(0, 3)]


def test_one_board_has_no_pairs(bare: System) -> None:
    told = _read(Machine(h100()), bare)
    assert (told.pairs, told.acs_bridges) == ((), ())


def test_a_driver_without_a_count_of_links_is_asked_link_by_link(bare: System) -> None:
    board = h100().but(FieldValues=Refuses(3), NvLinkState=lambda link: 1 if link < 6 else Refuses(2))
    assert len(_read(Machine(board), bare).nvlinks or ()) == 6


def test_what_breaks_is_told_by_its_part(bare: System) -> None:
    boards = [h100(index).but(P2PStatus=lambda *_: Refuses(999), NvLinkErrorCounter=Refuses(999)) for index in (0, 1)]
    told = _read(Machine(*boards), bare)
    assert told.unread == {"pairs": "Unknown Error", "nvlinks": "Unknown Error"}
    assert told.pairs is not None
    assert told.pairs[0].peer_access is None
