"""What each model of GPU board is by its data sheet."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model. None: no source was found."""

    name: str
    """Regular expression that NVML's name fits. Cards of one name can differ in memory."""
    compute_capability: str
    memory_gb: float | None = None
    memory_bandwidth_gb_s: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_w: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    fp16_tflops: float | None = None
    """On tensor cores with float32 sums, as torch multiplies; bfloat16 has the same rate where it is native."""
    fp8_tflops: float | None = None
    tensor_cores: bool
    nvlink: Literal["board", "bridge"] | None = None
    """`board`: always wired; `bridge`: sold with or without; None: none, or not known."""
    nvlink_links: int | None = None
    nvlink_gb_s: float | None = None
    """Both directions of all links together."""
    source: str


class _Table(msgspec.Struct, frozen=True):
    board: tuple[Board, ...]


@cache
def load() -> tuple[Board, ...]:
    """All rows. About 20 ms, so ask only where there is a GPU."""
    text = Path(__file__).with_name("gpus.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).board


def find(name: str | None) -> Board | None:
    """The row of a board by the name NVML gives; None for a model that is not in the table."""
    if name is None:
        return None
    return next((board for board in load() if re.search(board.name, name)), None)
