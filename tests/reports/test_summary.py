"""Names and counts in the headline."""

import msgspec
import pytest

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.network import Network, RdmaPort
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.reports.document import Document
from gpudoctor.reports.summary import header, lines, short_gpu_name
from gpudoctor.snapshot import Snapshot


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_a_board_is_called_as_people_call_it(name: str, short: str) -> None:
    assert short_gpu_name(name) == short


def _header(document: Document, machine: Snapshot) -> str:
    return header(msgspec.structs.replace(document, snapshot=machine))


def test_the_header_tells_host_boards_torch_and_driver(well: Document) -> None:
    assert header(well) == "node1 · 8 × H100 · torch 2.11.0+cu130 · driver 580.95"


def test_the_header_tells_what_is_known_and_no_more(well: Document) -> None:
    assert _header(well, Snapshot()) == "node1"
    assert _header(well, Snapshot(gpus=Gpus())) == "node1 · no GPU"
    assert _header(well, Snapshot(driver=Driver(pci_gpus=0))) == "node1 · no NVIDIA GPU"
    assert _header(well, Snapshot(torch=TorchBuild(installed=False))) == "node1 · no torch"
    assert header(msgspec.structs.replace(well, host=None, snapshot=Snapshot())) == ""


def test_different_boards_are_counted_apart(well: Document) -> None:
    boards = (
        Gpu(index=0, name="NVIDIA A100-SXM4-80GB"),
        Gpu(index=1, name="NVIDIA A30"),
        Gpu(index=2, name="NVIDIA A30"),
    )
    assert _header(well, Snapshot(gpus=Gpus(boards=boards))) == "node1 · 1 × A100 + 2 × A30"


def test_a_machine_of_which_nothing_is_known_has_no_lines(well: Document) -> None:
    assert list(lines(msgspec.structs.replace(well, snapshot=Snapshot()))) == []


def test_subjects_read_without_an_answer_have_no_lines(well: Document) -> None:
    empty = {
        name: msgspec.json.decode(b"{}", type=type(getattr(well.snapshot, name)))
        for name in ("gpus", "topology", "driver", "torch", "torch_runtime", "libraries", "shm", "limits", "cpu")
    }
    assert list(lines(msgspec.structs.replace(well, snapshot=Snapshot(**empty)))) == []


def test_ports_of_unknown_state_are_not_counted_as_down(well: Document) -> None:
    network = Network(rdma_ports=(RdmaPort(device="mlx5_0", port=1),))
    told = dict(lines(msgspec.structs.replace(well, snapshot=Snapshot(network=network))))
    assert "RDMA" not in str(told)
