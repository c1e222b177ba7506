"""Read lscpu, in whatever language it is: alone, and inside collect_env."""

from __future__ import annotations

import re

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.host import Host
from gpudoctor.readers.quantities import cpus, whole
from gpudoctor.snapshot import Snapshot

NAME = "lscpu"

_LINE = re.compile(r"^[\s>]{0,12}([^:\uff1a\n]{1,60}?)\s{0,8}[:\uff1a]\s{1,60}(\S[^\n]{0,200})$")
_COUNT = re.compile(r"CPU\(s\)|Processeur\(s\)|CPU|CPU:")
_SOCKETS = re.compile(r"Socket\(s\)|Sockel|Socket\(s\)|插槽|座")
_CORES = re.compile(r"Core\(s\) per socket|Kern\(e\) pro Sockel|Cœur\(s\) par socket|每个座的核数|每座核数")
_MODEL = re.compile(
    r"Model name|Modellname|Nom de modèle|Nombre del modelo|Nome do modelo|型号名称|モデル名|Имя модели"
)
_NODES = re.compile(r"NUMA node\(s\)|NUMA-Knoten|Nœud\(s\) NUMA|Modo\(s\) NUMA|Nó\(s\) de NUMA|NUMA 节点|NUMA ノード数")
_NODE = re.compile(r"NUMA[^:]{0,12}\d{1,3} CPU\(s\)|.{0,12}NUMA ?\d{1,3}.{0,12}")
_HYPERVISOR = re.compile(r"Hypervisor[ -]\S{1,20}|Constructeur d'hyperviseur|Fabricante del hipervisor|超管理器厂商")
_ONLINE = re.compile(r"\d{1,5}-\d{1,5}(?:,\d{1,5}-\d{1,5})*")
_WINDOWS = re.compile(r"^Name[:=] ?(\S[^\n]{4,100})$", re.MULTILINE)
MARKS = ("CPU(s)", "lscpu", "Model name", "Thread(s)", "CPU op-mode", "CPU:", "Processeur(s)", "\u5ea7")
"""The last is the socket of a Chinese lscpu."""


def read(text: str) -> Snapshot | None:
    """The CPUs, and whether a hypervisor runs below."""
    cpu = read_cpu(text)
    if cpu is None or cpu.count is None:
        return None
    virtual = any(_HYPERVISOR.match(key) for key, _ in _lines(text))
    return Snapshot(cpu=cpu, host=Host(virtual_machine=True) if virtual else None)


def read_cpu(text: str) -> Cpu | None:
    """None where there is no such table."""
    if not any(mark in text for mark in MARKS):
        return None
    lines = _lines(text)
    keys = {key for key, _ in lines}
    if len([key for key in keys if "CPU" in key or _MODEL.fullmatch(key) or _CORES.fullmatch(key)]) < 2:
        named = _WINDOWS.search(text) if "\nCPU:" in text else None
        return Cpu(model=named[1].strip()) if named else None
    online = next((cpus(value) for _, value in lines if _ONLINE.fullmatch(value)), None)
    counts = (whole(value) for key, value in lines if _COUNT.fullmatch(key) and value.strip().isdecimal())
    cores = next((whole(value) for key, value in lines if _CORES.fullmatch(key)), None)
    sockets = next((whole(value) for key, value in lines if _SOCKETS.fullmatch(key)), None)
    nodes = next((whole(value) for key, value in lines if _NODES.fullmatch(key) and value.isdecimal()), None)
    return Cpu(
        model=next((value.strip() for key, value in lines if _MODEL.fullmatch(key)), None),
        count=len(online) if online else next(counts, None),
        cores=cores * sockets if cores and sockets else None,
        numa_nodes=nodes or len({key for key, value in lines if _NODE.fullmatch(key) and cpus(value)}) or None,
    )


def _lines(text: str) -> list[tuple[str, str]]:
    """Keys and values around the first mark, at most 400 lines of them."""
    start = min((place for mark in MARKS if (place := text.find(mark)) >= 0), default=0)
    part = text[max(0, start - 400) : start + 20_000]
    return [(match[1].strip(), match[2].strip()) for line in part.splitlines()[:400] if (match := _LINE.match(line))]
