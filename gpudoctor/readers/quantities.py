"""Quantities as the tools print them: sizes, counts, lists of CPUs. What is no such quantity is None."""

from __future__ import annotations

import re

MOST_CPUS = 8192
"""No machine has more, so a longer list is no list of CPUs."""
POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"(\d{1,15}(?:[.,]\d{1,6})?) ?([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,15}(?:[.,]\d{1,9})?")
_CPUS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?){0,2048}")


def size(text: str, *, unit: str = "") -> int | None:
    """Bytes of `871MiB`, `1.0G`, `65536` (in `unit` where the text names none); in powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    return int(float(match[1].replace(",", ".")) * 1024 ** POWERS[match[2].upper() or unit])


def number(text: str | None) -> float | None:
    """The figure a text begins with: `76 W`, `31C`, `99 %`."""
    match = _NUMBER.match((text or "").strip())
    return float(match.group().replace(",", ".")) if match else None


def whole(text: str | None) -> int | None:
    """As `number`, without what stands behind the point."""
    value = number(text)
    return None if value is None else int(value)


def flag(text: str | None) -> bool | None:
    """Yes and no, in the words of the tools."""
    word = (text or "").strip().rstrip("*").lower()
    if word in {"yes", "true", "enabled", "on", "active"}:
        return True
    return False if word in {"no", "false", "disabled", "off", "not active"} else None


def cpus(text: str) -> tuple[int, ...] | None:
    """`0-31,64-95` as numbers, in order."""
    if _CPUS.fullmatch(text.strip()) is None:
        return None
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= MOST_CPUS:
            return None
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found)) or None


def bus_id(text: str) -> str | None:
    """As NVML writes it, `00000000:0F:00.0`, of `0000:0f:00`, `0f:00.0` and their kin."""
    match = re.fullmatch(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?", text.strip())
    if match is None:
        return None
    return f"{int(match[1] or '0', 16):08X}:{match[2].upper()}:{match[3].upper()}.{match[4] or '0'}"
