"""The control group of this process, version 1 or 2: its folder and those above it, as far as they are visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from gpudoctor.probes.mounts import Mount, mounts
from gpudoctor.probes.system import NotRead, System


class Limit(msgspec.Struct, frozen=True):
    """The lowest value along the path, and the group that sets it."""

    value: float
    folder: str


class ControlGroup(msgspec.Struct, frozen=True):
    """One controller's view: the groups from the process's own up to the highest that is mounted here."""

    system: System
    version: int
    folders: tuple[str, ...]

    def text(self, name: str, folder: str | None = None) -> str | None:
        """A file of a group (default: the process's own); None where it has no such file."""
        return self.system.text_or_none(f"{folder or self.folders[0]}/{name}")

    def number(self, name: str, folder: str | None = None) -> int | None:
        """A file that holds one whole number; None where it says anything else, such as `max`."""
        text = self.text(name, folder)
        return int(text) if text is not None and text.isdecimal() else None

    def table(self, name: str, folder: str | None = None) -> dict[str, int]:
        """A file of `key number` lines, such as memory.stat; empty where there is none."""
        pairs = (line.split() for line in (self.text(name, folder) or "").splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}

    def lowest(self, read: Callable[[str], float | None]) -> Limit | None:
        """The lowest answer of `read` over the folders: a limit above binds as much as one's own."""
        limits = [Limit(value, folder) for folder in self.folders if (value := read(folder)) is not None]
        return min(limits, key=lambda limit: limit.value, default=None)


def control_group(system: System, controller: str) -> ControlGroup:
    """The group that limits `cpu`, `memory` or `pids`.

    Raises NotRead where the kernel has none or its file system is not mounted here.
    Source: cgroups(7), sections on /proc/pid/cgroup and on the namespaces.
    """
    lines = [line.split(":", 2) for line in (system.text_or_none("/proc/self/cgroup") or "").splitlines()]
    of_version_1 = next((path for _, names, path in lines if controller in names.split(",")), None)
    of_version_2 = next((path for number, names, path in lines if number == "0" and not names), None)
    table = mounts(system)
    if of_version_1 is not None:
        version, path = 1, of_version_1
        mount = next((one for one in table if one.file_system == "cgroup" and controller in one.options), None)
    elif of_version_2 is not None:
        version, path = 2, of_version_2
        mount = next((one for one in table if one.file_system == "cgroup2"), None)
    else:
        raise NotRead("no control groups")
    if mount is None:
        raise NotRead("the control groups are not mounted here")
    return ControlGroup(system, version, _folders(mount, path))


def _folders(mount: Mount, path: str) -> tuple[str, ...]:
    """From the group up to the mount point.

    A container without a namespace of its own is told its path in the host, and sees its group as the mount's root.
    """
    try:
        inside = PurePosixPath(path).relative_to(mount.root)
    except ValueError:
        inside = PurePosixPath()
    if ".." in inside.parts:  # The group lies above what the namespace shows.
        inside = PurePosixPath()
    own = mount.point / inside
    return tuple(str(folder) for folder in (own, *own.parents) if folder.is_relative_to(mount.point))
