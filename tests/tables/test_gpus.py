"""The table of boards: whole, sourced, and found by the names NVML gives."""

import re

import pytest

from gpudoctor.tables import gpus


def test_every_row_has_a_source_and_a_pattern_of_a_whole_name() -> None:
    rows = gpus.load()
    assert len(rows) > 70
    for row in rows:
        assert row.source
        assert row.name.startswith("^")
        re.compile(row.name)
        assert re.fullmatch(r"\d+\.\d", row.compute_capability)


@pytest.mark.parametrize(
    ("name", "capability", "links"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", 18),
        ("NVIDIA H200", "9.0", 18),
        ("NVIDIA A100-SXM4-80GB", "8.0", 12),
        ("A100-SXM4-40GB", "8.0", 12),
        ("Tesla V100-SXM2-16GB", "7.0", 6),
        ("NVIDIA RTX A6000", "8.6", 4),
        ("NVIDIA GeForce RTX 4090", "8.9", None),
    ],
)
def test_boards_by_name(name: str, capability: str, links: int | None) -> None:
    row = gpus.find(name)
    assert row is not None
    assert (row.compute_capability, row.nvlink_links) == (capability, links)


def test_cards_of_alike_names_are_not_taken_for_each_other() -> None:
    bridged, wired, laptop = (
        gpus.find(name) for name in ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090 Laptop GPU")
    )
    assert bridged is not None
    assert wired is not None
    assert (bridged.nvlink, wired.nvlink) == ("bridge", "board")
    assert laptop is None
    assert gpus.find("NVIDIA H200 NVL") != gpus.find("NVIDIA H200")


def test_an_unknown_board_has_no_row() -> None:
    assert gpus.find("NVIDIA Something New") is None
    assert gpus.find(None) is None
