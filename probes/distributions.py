"""Find installed distributions along an interpreter's path, by their metadata folders.

WHY not importlib.metadata: its import and its look-ups took a sixth of a quick check's time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

FOLDER = re.compile(r"(?P<name>.+?)(?:-(?P<version>[^-]+))?(?:-py[\d.]+)?\.(?:dist|egg)-info")


class Distribution(msgspec.Struct, frozen=True):
    """One installed distribution."""

    version: str
    folder: Path
    """Its site-packages."""
    headers: tuple[str, ...]
    """Lines of its metadata before the description."""

    def header(self, name: str) -> str | None:
        """The first of that name; None where there is none."""
        return next(iter(self.all_of(name)), None)

    def all_of(self, name: str) -> list[str]:
        """Every one of that name, such as each `Requires-Dist`."""
        start = f"{name}:"
        return [line[len(start) :].strip() for line in self.headers if line.startswith(start)]


def find(names: Iterable[str], path: Iterable[Path]) -> dict[str, Distribution]:
    """Those that are installed, by their name as PyPI normalises it; first on the path wins, as in an import.

    Of several in one folder (leftovers of an upgrade) the one written last. Without readable metadata it is none.
    """
    wanted = set(names)
    found: dict[str, Distribution] = {}
    for folder in path:
        here: dict[str, tuple[float, Distribution]] = {}
        for name, written, info in _infos(folder, wanted - found.keys()):
            distribution = _read(info, folder)
            if distribution is not None and written >= here.get(name, (0.0,))[0]:
                here[name] = (written, distribution)
        found.update({name: distribution for name, (_, distribution) in here.items()})
    return found


def normalised(name: str) -> str:
    """`Flash_Attn` as `flash-attn`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _infos(folder: Path, wanted: set[str]) -> list[tuple[str, float, Path]]:
    """Name, time of change and place of each metadata folder; none where the folder is none (a zip, not there)."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = FOLDER.fullmatch(entry.name) if entry.name.endswith("-info") else None
                if match and (name := normalised(match["name"])) in wanted:
                    found.append((name, entry.stat().st_mtime, folder / entry.name))
    except OSError:
        return []
    return sorted(found)


def _read(info: Path, folder: Path) -> Distribution | None:
    for file in (info / "METADATA", info / "PKG-INFO", info):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        headers = tuple(text.partition("\n\n")[0].splitlines())
        distribution = Distribution("", folder, headers)
        version = distribution.header("Version")
        return Distribution(version, folder, headers) if version else None
    return None
