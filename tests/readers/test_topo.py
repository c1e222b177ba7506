"""Matrices of nvidia-smi topo and of CUDA's peer-access tests."""

import pytest

from gpudoctor.facts.topology import GpuPair
from gpudoctor.readers.topo import read
from gpudoctor.snapshot import Snapshot

TABS = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tmlx5_9\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tSYS\tPIX\tSYS\t0-3,8-11\t0\t\tN/A
GPU1\tNV18\t X \tNODE\tSYS\tSYS\t4-7\t1\t\tN/A
GPU2\tSYS\tNODE\t X \tSYS\tSYS\t4-7\t\t\tN/A
NIC0\tPIX\tSYS\tSYS\t X \tSYS\t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


def _read(text: str) -> Snapshot:
    found = read(text)
    assert found is not None
    return found


def _paths(text: str) -> dict[tuple[int, int], str | None]:
    topology = _read(text).topology
    assert topology is not None
    return {(pair.first, pair.second): pair.path for pair in topology.pairs or ()}


@pytest.mark.parametrize("spaced", [False, True])
def test_pairs_are_read_with_tabs_and_with_blanks(spaced: bool) -> None:
    text = TABS.expandtabs(8) if spaced else TABS
    assert _paths(text) == {(0, 1): "NV18", (0, 2): "SYS", (1, 2): "NODE"}


def test_cpus_numa_nodes_and_nics_are_read() -> None:
    found = _read(TABS)
    assert found.gpus is not None
    assert found.network is not None
    assert [board.numa_node for board in found.gpus.boards] == [0, 1, None]
    assert found.gpus.boards[0].cpu_affinity == (0, 1, 2, 3, 8, 9, 10, 11)
    assert [port.device for port in found.network.rdma_ports or ()] == ["mlx5_0"]


def test_cut_rows_give_what_is_left() -> None:
    assert _paths("\n".join(TABS.splitlines()[:2])) == {(0, 1): "NV18", (0, 2): "SYS"}
    assert _paths("\tGPU0\tGPU1\nGPU0\t X \nGPU1\tPHB") == {(0, 1): "PHB"}


def test_a_matrix_of_peer_status_tells_of_access() -> None:
    text = " \tGPU0\tGPU1\tGPU2\nGPU0\tX\tOK\tCNS\nGPU1\tOK\tX\tOK\n"
    topology = _read(text).topology
    assert topology is not None
    assert topology.pairs == (
        GpuPair(first=0, second=1, peer_access=True, peer_status="ok"),
        GpuPair(first=0, second=2, peer_access=False, peer_status="chipset_not_supported"),
        GpuPair(first=1, second=2, peer_access=True, peer_status="ok"),
    )


def test_peer_access_that_is_refused_one_way_is_refused() -> None:
    text = (
        "Device=0 CAN Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\nDevice=1 CAN Access Peer Device=2\n"
    )
    topology = _read(text).topology
    assert topology is not None
    assert [pair.peer_access for pair in topology.pairs or ()] == [False, True]


def test_the_connectivity_matrix_is_read() -> None:
    text = (
        "P2P Connectivity Matrix\n     D\\D     0     1\n     0       1     0\n     1       0     1\nUnidirectional\n"
    )
    topology = _read(text).topology
    assert topology is not None
    assert topology.pairs == (GpuPair(first=0, second=1, peer_access=False),)


@pytest.mark.parametrize("text", ["GPU0 and GPU1 are slow", "GPU0 GPU1\nGPU0 is fine", "GPU0 " * 100_000])
def test_other_lines_with_gpus_are_none(text: str) -> None:
    assert read(text) is None
