"""What NVIDIA publishes of CUDA: drivers and boards of each toolkit, and the error numbers. Rows: cuda.toml."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class Major(msgspec.Struct, frozen=True):
    """One major version, within which programs run on older drivers ("minor-version compatibility")."""

    cuda: int
    min_driver: str
    """The lowest driver on Linux; a branch alone, such as `580`, where every release of it will do."""
    source: str


class Toolkit(msgspec.Struct, frozen=True):
    """One minor version, such as 12.8."""

    cuda: str
    source: str
    compute_capability_source: str
    driver: str | None = None
    """The Linux driver its first release came with; a branch alone where no more is known."""
    min_compute_capability: str | None = None
    """The oldest boards its compiler knows, `major.minor`."""
    max_compute_capability: str | None = None
    """The newest; those in between are not all there (11.0 and 10.7 came after 12.1)."""
    uncertain: bool = False
    """The range of boards is not confirmed by NVIDIA's own page."""


class Error(msgspec.Struct, frozen=True):
    """One number of cudaError_t; the driver API shares those used here."""

    code: int
    name: str
    meaning: str
    source: str


class Cuda(msgspec.Struct, frozen=True):
    """The whole table."""

    sources: dict[str, str]
    """Key used in the rows → the document."""
    major: tuple[Major, ...]
    toolkit: tuple[Toolkit, ...]
    """Newest first."""
    error: tuple[Error, ...]


@cache
def load() -> Cuda:
    """The table, decoded once a process."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Cuda)


def numbers(version: str) -> tuple[int, ...]:
    """`570.124.06` → (570, 124, 6), for comparing; ends at the first part that is no number, so () for none."""
    parts: list[int] = []
    for part in version.strip().split("."):
        if not part.isdecimal():
            break
        parts.append(int(part))
    return tuple(parts)


def min_driver(cuda: str) -> str | None:
    """The lowest driver that runs programs built for this CUDA, such as `12.8`; None for a major not in the table."""
    major = numbers(cuda)[:1]
    return next((row.min_driver for row in load().major if (row.cuda,) == major), None)


def toolkit(cuda: str) -> Toolkit | None:
    """The row of a version such as `12.8` or `12.8.1`."""
    minor = numbers(cuda)[:2]
    return next((row for row in load().toolkit if numbers(row.cuda) == minor), None)


def error(code: int) -> str:
    """`error 802 (cudaErrorSystemNotReady)`."""
    name = next((row.name for row in load().error if row.code == code), None)
    return f"error {code} ({name})" if name else f"error {code}"
