"""Figures as people read them."""

from __future__ import annotations


def milliseconds(length_ms: float) -> str:
    """`0.82 ms`, `82.1 ms`, `225 ms`, `1,021 ms`: three figures, and all that stand before the point."""
    return f"{three(length_ms)} ms"


def rate(per_s: float) -> str:
    """`195`, `12.5k`, `1.2M`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if per_s >= unit:
            return f"{three(per_s / min(unit, 1e3 if name == 'k' else unit))}{name}"
    return three(per_s)


def percent(share: float) -> str:
    """`52 %`, `0.4 %`; `0 %` is none at all."""
    if share <= 0:
        return "0 %"
    return f"{share * 100:.0f} %" if share >= 0.0095 else f"{share * 100:.1f} %" if share >= 0.0005 else "< 0.1 %"


def seconds(length_s: float) -> str:
    """`42 s`, `1.5 s`, `12 min`."""
    return f"{length_s / 60:.0f} min" if length_s >= 600 else f"{length_s:.3g} s"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def three(value: float) -> str:
    """`4,149`, `55.2`, `7.5`: three figures, and all that stand before the point."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits == 2 and "." in text else text
