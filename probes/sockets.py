"""Read which TCP ports are listened on, and by which processes, from /proc: needs no root for the ports."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudoctor.probes.system import NotRead, System

LISTEN = "0A"


class Listener(msgspec.Struct, frozen=True):
    """One listening socket."""

    address: str
    port: int
    inode: str


def listeners(system: System) -> tuple[Listener, ...]:
    """Of this network namespace. Raises NotRead where the kernel has no such table (macOS)."""
    found: list[Listener] = []
    tables = [text for name in ("tcp", "tcp6") if (text := system.text_or_none(f"/proc/net/{name}")) is not None]
    if not tables:
        raise NotRead("no /proc/net/tcp")
    for table in tables:
        for line in table.splitlines()[1:]:
            columns = line.split()
            with suppress(IndexError, ValueError):  # a line of another layout
                if columns[3] == LISTEN:
                    address, _, port = columns[1].partition(":")
                    found.append(Listener(_address(address), int(port, 16), columns[9]))
    return tuple(found)


def _address(digits: str) -> str:
    """`0100007F` → `127.0.0.1`: words of four bytes, each in the machine's order."""
    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def processes(system: System) -> Iterator[tuple[int, Path]]:
    """Number and /proc folder of every process that may be seen."""
    for folder in system.glob("/proc/[0-9]*"):
        if folder.name.isdigit():
            yield int(folder.name), folder


def inodes(process: Path) -> frozenset[str]:
    """Of the sockets a process holds; empty where it is another user's."""
    held: set[str] = set()
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed since
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    held.add(target[8:-1])
    return frozenset(held)


def arguments(process: Path) -> tuple[str, ...]:
    """Its command line; empty for kernel threads, for what has ended, and where it may not be read."""
    with suppress(OSError):
        text = (process / "cmdline").read_bytes().decode("utf-8", errors="replace")
        return tuple(text.removesuffix("\0").split("\0")) if text else ()
    return ()


def is_loopback(address: str) -> bool:
    """127.0.0.0/8, ::1 and `localhost`."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
