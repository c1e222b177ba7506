"""Make one Snapshot of what several readers found: field by field, the first that tells wins."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

from gpudoctor.facts.base import Fact
from gpudoctor.facts.driver import DeviceNode
from gpudoctor.facts.errors import ErrorText
from gpudoctor.facts.exposure import Notebook
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel_log import XidEvent
from gpudoctor.facts.libraries import SystemLibrary, WheelLibrary
from gpudoctor.facts.network import Interface, RdmaPort
from gpudoctor.facts.packages import Package
from gpudoctor.facts.topology import AcsBridge, GpuPair, NvLink
from gpudoctor.facts.torch import LoadedVersion, SmokeTest
from gpudoctor.snapshot import SUBJECTS, Snapshot

T = TypeVar("T", bound=Fact)

KEYS: dict[type[Fact], tuple[str, ...]] = {
    AcsBridge: ("bus_id",),
    DeviceNode: ("path",),
    ErrorText: ("kind", "line", "rank"),
    Gpu: ("index",),
    GpuPair: ("first", "second"),
    Interface: ("name",),
    LoadedVersion: ("name",),
    Notebook: ("address", "port", "pid"),
    NvLink: ("gpu", "link"),
    Package: ("name",),
    RdmaPort: ("device", "port"),
    SmokeTest: ("device",),
    SystemLibrary: ("path",),
    WheelLibrary: ("package",),
    XidEvent: ("xid", "pci_bus_id", "text", "age_s"),
}
"""Facts that come in lists → what tells one from another. Other lists are taken whole from the first that has one."""


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The most specific first."""
    found = list(snapshots)
    subjects: dict[str, Any] = {}
    for name in SUBJECTS:
        told = [fact for snapshot in found if (fact := getattr(snapshot, name)) is not None]
        if not told:
            continue
        one = told[0]
        for other in told[1:]:
            one = _joined_boards(one, other) if isinstance(one, Gpus) else joined(one, other)
        subjects[name] = one
    first = found[0] if found else Snapshot()
    unread = {name: reason for snapshot in found for name, reason in snapshot.unread.items() if name not in subjects}
    return Snapshot(taken_at=first.taken_at, expected=first.expected, unread=unread, **subjects)


def joined(first: T, second: T) -> T:
    """Every field of the first that tells anything, else that of the second."""
    changed = {}
    for name, default in _defaults(type(first)):
        one, other = getattr(first, name), getattr(second, name)
        if one == default or one is None:
            changed[name] = other
        elif other is not None and other != one:
            changed[name] = _both(name, one, other)
    return msgspec.structs.replace(first, **changed)


@cache
def _defaults(kind: type[Fact]) -> tuple[tuple[str, Any], ...]:
    """Each field with the value it has where nothing is known."""
    return tuple(
        (field.name, field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default)
        for field in msgspec.structs.fields(kind)
    )


def _both(name: str, one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**other, **one}
    if name == "name" and isinstance(one, str) and one.endswith("...") and not str(other).endswith("..."):
        return other  # nvidia-smi cuts long names in its table
    if isinstance(one, Fact) and isinstance(other, Fact):
        return joined(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple) and one and other and type(one[0]) in KEYS:
        return _union(one, other, KEYS[type(one[0])])
    return one


def _union(one: tuple[Any, ...], other: tuple[Any, ...], keys: tuple[str, ...]) -> tuple[Any, ...]:
    found: dict[tuple[Any, ...], Any] = {}
    for item in (*one, *other):
        key = tuple(getattr(item, name) for name in keys)
        found[key] = joined(found[key], item) if key in found else item
    return tuple(found.values())


def _joined_boards(first: Gpus, second: Gpus) -> Gpus:
    """By bus id where both have one, since tools count boards differently; else by index."""
    known: dict[int, Gpu] = {}
    parts: dict[int, Gpu] = {}
    for board in (*first.boards, *second.boards):
        if _is_nameless(board):
            parts[board.index] = joined(parts[board.index], board) if board.index in parts else board
        else:
            index = _index(known, board)
            same = msgspec.structs.replace(board, index=index)
            known[index] = joined(known[index], same) if index in known else same
    for part in parts.values():
        # A part of `nvidia-smi -q` without its heading is of the only board; of several nobody knows which.
        alone = next(iter(known.values())) if len(known) == len(parts) == 1 else None
        if alone is not None and not alone.lost:
            known[alone.index] = joined(alone, msgspec.structs.replace(part, index=alone.index))
        else:
            index = part.index if part.index not in known else max(known) + 1
            known[index] = msgspec.structs.replace(part, index=index)
    boards = tuple(known[index] for index in sorted(known))
    return msgspec.structs.replace(first, boards=boards, unread={**second.unread, **first.unread})


def _index(known: dict[int, Gpu], board: Gpu) -> int:
    same = next(
        (index for index, one in known.items() if board.pci_bus_id and one.pci_bus_id == board.pci_bus_id), None
    )
    if same is not None:
        return same
    own = known.get(board.index)
    taken = own is not None and own.pci_bus_id and board.pci_bus_id
    return max(known) + 1 if taken else board.index


def _is_nameless(board: Gpu) -> bool:
    """Nothing tells which board it is, though it tells of its state."""
    told = (board.pci_bus_id, board.name, board.processes, board.cpu_affinity, board.numa_node, board.uuid)
    return all(part is None for part in told) and not board.lost
