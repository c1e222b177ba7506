"""Which file systems are mounted where, from the kernel's own table: reading it cannot hang on a dead mount."""

from __future__ import annotations

import re

import msgspec

from gpudoctor.probes.system import System


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo."""

    point: str
    """Where it is mounted, as this process sees it."""
    root: str
    """The folder of the file system that is mounted there; `/` unless it is a bind mount or a namespace's view."""
    file_system: str
    device: str
    options: tuple[str, ...]
    """Of the file system, such as `size=65536k`."""


def mounts(system: System) -> tuple[Mount, ...]:
    """All mounts this process sees, oldest first; empty where there is no such table (macOS)."""
    return parse(system.text_or_none("/proc/self/mountinfo") or "")


def parse(text: str) -> tuple[Mount, ...]:
    """Of the text of a mountinfo file."""
    return tuple(mount for line in text.splitlines() if (mount := _mount(line)))


def mount_of(table: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount a path lies on: the longest mount point above it, and of equals the last, which hides the others."""
    above = [mount for mount in table if mount.point == "/" or f"{path}/".startswith(f"{mount.point}/")]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _mount(line: str) -> Mount | None:
    """Source: proc_pid_mountinfo(5). The number of fields before the dash varies."""
    fields, _, rest = line.partition(" - ")
    left, right = fields.split(" "), rest.split(" ")
    if len(left) < 6 or len(right) < 2:
        return None
    root, point, device = (_ESCAPE.sub(_unescaped, text) for text in (left[3], left[4], right[1]))
    return Mount(point, root, right[0], device, tuple(right[2].split(",")) if len(right) > 2 else ())


_ESCAPE = re.compile(r"\\([0-7]{3})")


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 8))
