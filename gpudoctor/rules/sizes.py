"""Bytes as people read them, for what rules have seen and want."""

KIB, MIB, GIB, TIB = (2**10, 2**20, 2**30, 2**40)


def size(count: int) -> str:
    """`64 MiB`, `1.5 GiB`: three figures at most, in the unit that keeps the number below 1024."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.0f} {name}" if value >= 100 or value == int(value) else f"{value:.3g} {name}"
    return f"{count} bytes"
