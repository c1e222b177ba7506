"""Compute capabilities, as rules ask about them: which code runs on which card, and how cards are named."""

from __future__ import annotations

import re
from collections.abc import Iterable

NOT_ON = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1"})
"""Systems on a chip: code for an earlier minor of their major does not run on them (torch.cuda's own check, 2.14)."""
SINCE_13_2 = frozenset({"7.2", "8.7"})
"""Of those, the ones it does run on where it comes from CUDA 13.2 or newer (same source)."""
ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def number(capability: str) -> tuple[int, int]:
    """`12.0` is (12, 0); (0, 0) where the text is none."""
    major, _, minor = capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def runs(arch: str, capability: str, cuda: str | None = None) -> bool:
    """Code for an arch (`sm_86`, `sm_90a`, PTX as `compute_90`), built with a CUDA (`12.8`), runs on a card.

    Binary code runs on its own major version from its minor on, PTX on everything newer; an `a` binds it to one card,
    an `f` to a family. Source: CUDA programming guide, binary and PTX compatibility.
    """
    match = ARCH.fullmatch(arch)
    if match is None:
        return False
    kind, major, minor, suffix = match[1], int(match[2]), int(match[3]), match[4]
    card = number(capability)
    if suffix == "a" or card == (major, minor):
        return card == (major, minor)
    if kind == "compute" and not suffix:
        return card >= (major, minor)
    if (major, minor) == (11, 0):
        return capability == "10.1"  # the same chip under its earlier number
    apart = NOT_ON - SINCE_13_2 if number(cuda or "") >= (13, 2) else NOT_ON
    return card[0] == major and card[1] >= minor and capability not in apart


def gpus(indices: Iterable[int]) -> str:
    """`GPU 0, 2, 3`."""
    return "GPU " + ", ".join(str(index) for index in sorted(indices))


def by_capability(capabilities: dict[int, str]) -> dict[str, list[int]]:
    """Capability → its GPUs, so that eight cards of one model make one finding."""
    grouped: dict[str, list[int]] = {}
    for index, capability in capabilities.items():
        grouped.setdefault(capability, []).append(index)
    return grouped
