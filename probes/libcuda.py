"""Find the driver's libcuda the way the loader does."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from pathlib import PurePosixPath

import msgspec

from gpudoctor.probes.system import NotRead, System

NAME = "libcuda.so.1"
CACHE_ARCHITECTURE = {"x86_64": "x86-64", "aarch64": "AArch64", "ppc64le": "64bit"}
"""How `ldconfig -p` calls the instruction sets."""

DEFAULT_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)
"""Where the loader looks by itself; WSL puts its own into the cache."""


class Search(msgspec.Struct, frozen=True):
    """What the loader would find for a process started here."""

    paths: tuple[str, ...]
    """In its order of preference; one file under two names counts once."""
    version: str | None
    """In the name of the first one's file."""
    compat: bool
    """The first one is cuda-compat's."""
    stubs: str | None
    """A toolkit's stubs folder in LD_LIBRARY_PATH."""


def libcuda(system: System) -> Search:
    """LD_LIBRARY_PATH, then the loader's cache, then the default folders.

    An RPATH of the program may come before them; torch sets none that leads to a libcuda.
    """
    asked = [folder for folder in system.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    candidates = [f"{folder.rstrip('/')}/{NAME}" for folder in asked]
    if system.live:
        for command in ("ldconfig", "/sbin/ldconfig"):
            with suppress(NotRead):
                candidates += cached(system.run([command, "-p"], timeout_s=2.0), platform.machine())
                break
    candidates += [f"{folder}/{NAME}" for folder in DEFAULT_FOLDERS]
    found: dict[str, str] = {}
    for path in candidates:
        with suppress(OSError):
            found.setdefault(str(system.path(path).resolve(strict=True)), path)
    first = next(iter(found), "")
    version = re.search(r"libcuda\.so\.(\d{3}\.[\d.]+)$", first)
    names = {*PurePosixPath(first).parts, *PurePosixPath(next(iter(found.values()), "")).parts}
    return Search(
        paths=tuple(found.values()),
        version=version[1] if version else None,
        compat=bool(names & {"compat", "cuda-compat"}),
        stubs=next((folder for folder in asked if "stubs" in folder.split("/") and system.path(folder).is_dir()), None),
    )


def cached(listing: str, machine: str) -> list[str]:
    """Paths of libcuda in the output of `ldconfig -p`, of this machine's instruction set alone."""
    lines = re.findall(rf"^\s*{re.escape(NAME)} \((.*)\) => (\S+)$", listing, re.MULTILINE)
    return [path for kind, path in lines if CACHE_ARCHITECTURE.get(machine, "") in kind]
