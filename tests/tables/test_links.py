"""The table of links."""

import pytest

from gpudoctor.tables import links


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 300),
        ("NVIDIA H100 80GB HBM3", 450),
        ("NVIDIA H200", 450),
        ("NVIDIA B200", 900),
        ("NVIDIA GB200", 900),
        ("Tesla V100-SXM2-32GB", 150),
    ],
)
def test_boards_that_always_have_nvlink_have_its_figure(name: str, bandwidth: float) -> None:
    board = links.load().nvlink(name)
    assert board is not None
    assert (board.nvlink_gb_s, bool(board.source)) == (bandwidth, True)


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA A100 80GB PCIe", "NVIDIA L40S", ""])
def test_boards_that_may_lack_nvlink_have_none(name: str) -> None:
    assert links.load().nvlink(name) is None
