"""Links and Access Control Services from lspci."""

from gpudoctor.facts.gpu import Gpu
from gpudoctor.readers.lspci import read

REDIRECTS = "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
QUIET = "ACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
LINK = (
    "LnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)"
)
WHOLE = f"""\
3a:00.0 PCI bridge: Intel Corporation Sky Lake-E PCI Express Root Port A
\t\t{REDIRECTS}
3b:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB]
\t\t{LINK}
\t\t{REDIRECTS}
5e:00.0 Ethernet controller: Mellanox Technologies MT27800
\t\t{LINK}
"""


def test_only_bridges_count_and_only_boards_have_links() -> None:
    found = read(WHOLE)
    assert found is not None
    assert found.topology is not None
    assert [bridge.bus_id for bridge in found.topology.acs_bridges or ()] == ["3a:00.0"]
    assert found.gpus is not None
    assert found.gpus.boards == (
        Gpu(
            index=0,
            pci_bus_id="00000000:3B:00.0",
            pcie_generation=3,
            pcie_generation_max=4,
            pcie_width=8,
            pcie_width_max=16,
        ),
    )


def test_lines_of_grep_are_bridges_without_names() -> None:
    found = read(f"{REDIRECTS}\n{QUIET}\n{REDIRECTS}\n")
    assert found is not None
    assert found.topology is not None
    assert len(found.topology.acs_bridges or ()) == 2


def test_quiet_bridges_are_an_answer() -> None:
    found = read(QUIET)
    assert found is not None
    assert found.topology is not None
    assert found.topology.acs_bridges == ()
