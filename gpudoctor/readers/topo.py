"""Read `nvidia-smi topo -m` (tabs or blanks, with NICs and NUMA columns), `topo -p2p` and CUDA's peer-access tests."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.network import Network, RdmaPort
from gpudoctor.facts.topology import GpuPair, Topology
from gpudoctor.readers.quantities import cpus
from gpudoctor.snapshot import Snapshot

NAME = "nvidia-smi topo"
MOST_DEVICES = 160
"""Columns of a matrix; a longer line is something else."""

MARKS = ("GPU0", "GPU1", "Access Peer", "P2P Connectivity Matrix")
_DEVICE = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|\w{1,32}_\d{1,3}")
_ENTRY = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|OK|CNS|GNS|TNS|NS|DR|U|N/A")
_HEADER = re.compile(r"\s{0,40}GPU\d{1,3}(?:\s|$)")
_ROW = re.compile(r"\s{0,16}((?:GPU|NIC)\d{1,3}|\w{1,32}_\d{1,3})\s")
_LEGEND = re.compile(r"\s{1,16}(NIC\d{1,3}): (\S{1,64})\s{0,16}")
_PEER = re.compile(r"\bDevice=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})\b")
_LINK = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS")
PEER_STATUS = {
    "OK": "ok",
    "CNS": "chipset_not_supported",
    "GNS": "gpu_not_supported",
    "TNS": "topology_not_supported",
    "DR": "disabled_by_regkey",
    "NS": "not_supported",
    "U": "unknown",
}  # legend of `nvidia-smi topo -p2p`


class _Row(NamedTuple):
    gpu: int
    entries: tuple[str, ...]
    near_cpus: tuple[int, ...] | None
    numa_node: int | None


def read(text: str) -> Snapshot | None:
    """Pairs of GPUs, the CPUs near each, and the names of the NICs."""
    if not any(mark in text for mark in MARKS):
        return None
    pairs: dict[tuple[int, int], GpuPair] = {}
    boards: dict[int, Gpu] = {}
    ports: dict[str, None] = {}
    columns: list[str] = []
    in_matrix = False
    for line in text.splitlines():
        if "GPU" in line and _HEADER.match(line) and _ROW.match(line + " ") is not None and (found := _columns(line)):
            columns = found
        elif columns and (label := _ROW.match(line)) is not None:
            if label[1].startswith("GPU") and (row := _row(label[1], line[label.end() :], len(columns))):
                _enter(row, columns, pairs, boards)
            elif not label[1].startswith(("GPU", "NIC")) and label[1] in columns and len(ports) < MOST_DEVICES:
                ports[label[1]] = None
        elif "NIC" in line and (legend := _LEGEND.fullmatch(line)) and len(ports) < MOST_DEVICES:
            ports[legend[2]] = None
        elif "Access Peer" in line and (peer := _PEER.search(line)):
            _allow(pairs, int(peer[1]), int(peer[3]), peer[2] == "CAN")
        elif "P2P Connectivity Matrix" in line:
            in_matrix = True
        elif in_matrix:
            in_matrix = _connectivity(line, pairs)
    if not pairs and not boards:
        return None
    return Snapshot(
        topology=Topology(pairs=tuple(pairs[pair] for pair in sorted(pairs))),
        gpus=Gpus(boards=tuple(boards[index] for index in sorted(boards)), source="text") if boards else None,
        network=Network(rdma_ports=tuple(RdmaPort(device=name, port=1) for name in ports)) if ports else None,
    )


def _columns(line: str) -> list[str] | None:
    """The devices of a heading; None where the line is a row."""
    names = re.split(r"CPU Affinity|NUMA Affinity", line, maxsplit=1)[0].split()
    if len(names) > MOST_DEVICES or not all(_DEVICE.fullmatch(name) for name in names):
        return None
    return names


def _row(label: str, rest: str, width: int) -> _Row | None:
    """By tabs where there are some, since columns may be empty; else by blanks."""
    fields = [field.strip() for field in rest.split("\t")] if "\t" in rest else rest.split()
    if not fields or len(fields) > MOST_DEVICES + 8:
        return None
    entries = tuple(fields[:width])
    if not all(_ENTRY.fullmatch(entry) for entry in entries):
        return None
    near = fields[width] if len(fields) > width else ""
    node = fields[width + 1] if len(fields) > width + 1 else ""
    return _Row(int(label[3:]), entries, cpus(near), int(node) if node.isdecimal() and len(node) < 4 else None)


def _enter(row: _Row, columns: list[str], pairs: dict[tuple[int, int], GpuPair], boards: dict[int, Gpu]) -> None:
    boards[row.gpu] = Gpu(index=row.gpu, numa_node=row.numa_node, cpu_affinity=row.near_cpus)
    for column, entry in zip(columns, row.entries, strict=False):
        if not column.startswith("GPU") or entry in {"X", "N/A"}:
            continue
        first, second = sorted((row.gpu, int(column[3:])))
        known = pairs.get((first, second))
        if _LINK.fullmatch(entry):
            access, status = (known.peer_access, known.peer_status) if known else (None, None)
            pairs[first, second] = GpuPair(
                first=first, second=second, path=entry, peer_access=access, peer_status=status
            )
        elif (told := PEER_STATUS.get(entry)) is not None:
            pairs[first, second] = GpuPair(
                first=first,
                second=second,
                path=known.path if known else None,
                peer_access=told == "ok",
                peer_status=told,
            )


def _allow(pairs: dict[tuple[int, int], GpuPair], one: int, other: int, allowed: bool) -> None:
    """Access that is refused one way is refused."""
    first, second = sorted((one, other))
    if first == second or (len(pairs) > MOST_DEVICES**2 and (first, second) not in pairs):
        return
    known = pairs.get((first, second), GpuPair(first=first, second=second))
    access = allowed if known.peer_access is None else allowed and known.peer_access
    pairs[first, second] = GpuPair(
        first=first, second=second, path=known.path, peer_access=access, peer_status=known.peer_status
    )


def _connectivity(line: str, pairs: dict[tuple[int, int], GpuPair]) -> bool:
    """A row of p2pBandwidthLatencyTest's matrix; False where it has ended."""
    words = line.split()
    if words[:1] == ["D\\D"]:
        return True
    if not words or len(words) > MOST_DEVICES or not all(word.isdecimal() and len(word) < 4 for word in words):
        return False
    for column, word in enumerate(words[1:]):
        if column != int(words[0]):
            _allow(pairs, int(words[0]), column, word == "1")
    return True
