"""Read what a shell says of limits and space: `ulimit`, /proc/self/limits, `df` of /dev/shm."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.facts.limits import Limits
from gpudoctor.facts.shm import Shm
from gpudoctor.readers.quantities import size
from gpudoctor.snapshot import Snapshot

NAME = "limits and shared memory"
KIB = 1024

_ULIMIT = re.compile(
    r"^[\s>]{0,12}(?:-[nlus]: )?(?P<what>open files|file descriptors|max locked memory|locked-in-memory size"
    r"|max user processes|processes|stack size)\s{0,40}(?:\((?:kbytes, ?)?-[nlus]\)|\(kbytes\))?\s{1,20}"
    r"(?P<value>unlimited|\d{1,12})\s*$",
    re.MULTILINE,
)
_KERNEL = re.compile(
    r"^[\s>]{0,12}Max (?P<what>open files|locked memory|processes|stack size) {1,24}(?P<soft>unlimited|\d{1,19}) {1,24}"
    r"(?P<hard>unlimited|\d{1,19})",
    re.MULTILINE,
)
_ASKED = re.compile(
    r"^.{0,60}\bulimit -(?P<option>[HS]?[nlus])\s{0,4}\n\s{0,4}(?P<value>unlimited|\d{1,12})\s*$", re.MULTILINE
)
_MEMLOCK = re.compile(r"(?:--ulimit[ =]|Ulimit=)memlock=(-?\d{1,15})")
_SHM = re.compile(
    r"^[\s>|]{0,12}(?P<device>\S{1,80})\s{1,80}(?P<total>[\d.,]{1,15}[KMGTP]?i?B?)\s{1,20}(?P<used>[\d.,]{1,15}[KMGTP]?i?B?)\s{1,20}"
    r"(?P<free>[\d.,]{1,15}[KMGTP]?i?B?)\s{1,20}(?P<share>\d{1,3}%|-)\s{1,20}/dev/shm\s*$",
    re.MULTILINE,
)
_BLOCKS = {"1M-blocks": "M", "1G-blocks": "G"}


def read(text: str) -> Snapshot | None:
    """Soft limits, and the last line of df on /dev/shm."""
    limits, shm = _limits(text), _shm(text)
    if not limits and shm is None:
        return None
    return Snapshot(limits=Limits(**limits) if limits else None, shm=shm)


def _limits(text: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "files" in text or "locked" in text or "ulimit" in text:
        for match in _KERNEL.finditer(text):
            _take(told, match["what"], match["soft"], 1)
            if match["what"] == "open files" and match["hard"].isdecimal():
                told["open_files_hard"] = int(match["hard"])
        for match in _ULIMIT.finditer(text):
            _take(
                told, match["what"], match["value"], KIB if "lock" in match["what"] or "stack" in match["what"] else 1
            )
        for match in _ASKED.finditer(text):
            names = {"n": "open files", "l": "locked", "u": "processes", "s": "stack size"}
            if not match["option"].startswith("H"):
                _take(told, names[match["option"][-1]], match["value"], KIB if match["option"][-1] in "ls" else 1)
    if "memlock=" in text and (lock := _MEMLOCK.search(text)):
        _take(told, "locked", "unlimited" if lock[1].startswith("-") else lock[1], 1)
    return told


def _take(told: dict[str, Any], what: str, value: str, unit: int) -> None:
    figure = None if value == "unlimited" else int(value) * unit
    if "lock" in what:
        told.update(locked_memory_bytes=figure, locked_memory_unlimited=figure is None)
    elif "files" in what or "descriptors" in what:
        told["open_files"] = figure
    elif "processes" in what:
        told["processes"] = figure
    else:
        told["stack_bytes"] = figure


def _shm(text: str) -> Shm | None:
    if "/dev/shm" not in text:
        return None
    last = None
    for match in _SHM.finditer(text):
        last = match
    if last is None:
        return None
    # Without -h df counts blocks of a KiB, unless its heading says otherwise.
    unit = next(
        (unit for words, unit in _BLOCKS.items() if words in text[max(0, last.start() - 2000) : last.start()]), "K"
    )
    plain = last["total"].isdecimal()
    total, free = (size(last[name], unit=unit if plain else "") for name in ("total", "free"))
    device = last["device"]
    return Shm(
        exists=True,
        file_system="tmpfs" if device in {"shm", "tmpfs", "none"} else None,
        total_bytes=total,
        free_bytes=free,
    )
