"""Read what nvidia-smi prints: its table (drivers 384 to 617), the process table, `-L`, and its error words.

Of several states in one text the last counts: people show the table, change something, and show what it says then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus, MigInstance
from gpudoctor.readers.quantities import bus_id, number, size, whole
from gpudoctor.snapshot import Snapshot

NAME = "nvidia-smi"
MOST_BOARDS = 256
MOST_PROCESSES = 4096
"""On one board."""
ROWS_BELOW = 2
"""Of a board, below its first row."""
MOST_CELLS, MOST_WORDS = 8, 64
"""In a line of the table; a longer one is something else."""

_HEADER = re.compile(
    r"NVIDIA-SMI\s{1,40}v?[\d.]{1,20}\s[^\n]{0,120}?(?:Driver|KMD) Version:\s{0,40}([\d.]{1,20})([^\n]{0,120})"
)
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s{0,40}(\d{1,3}\.\d{1,3})")
_BUS = re.compile(r"\s{0,12}([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\b")
_LOAD = re.compile(
    r"(?:N/A|ERR!|\d{1,3}\s?%|\s)?\s{0,12}(?P<temperature>\d{1,3}C|N/A|ERR!)?\s{1,12}(?P<state>P\d{1,2}|N/A|ERR!)\b"
)
_POWER = re.compile(
    r"(?:(\d{1,5}(?:\.\d{1,3})?)W|N/A|ERR!|Unknown Error)\s{0,12}/\s{0,12}(?:(\d{1,5}(?:\.\d{1,3})?)W|N/A|ERR!)"
)
_MEMORY = re.compile(r"(\d{1,8})MiB\s{0,12}/\s{0,12}(\d{1,8})MiB")
_MODES = {
    "Default": "default",
    "E. Process": "exclusive_process",
    "E. Thread": "exclusive_thread",
    "Prohibited": "prohibited",
}
_KINDS = {"C": "compute", "M+C": "compute", "G": "graphics", "C+G": "graphics", "M+C+G": "graphics"}
"""WHY C+G is graphics: it is what Windows desktop programs are listed as."""
_MODELS = frozenset({"WDDM", "TCC", "MCDM", "WSL", "ERR!", "N/A"})
"""What stands in the place of persistence mode on Windows."""
_LISTED = re.compile(r"\s{0,16}GPU (\d{1,3}): (\S.{0,80}?) \(UUID: (GPU-[\w-]{1,60})\)")
_LISTED_MIG = re.compile(r"\s{1,16}MIG (\S.{0,60}?)\s{1,12}Device\s{1,8}\d{1,3}: \(UUID: (MIG-[\w/-]{1,80})\)")
_LOST = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU) ?(?P<index>\d{1,3}(?!\d|:\d{2}|[0-9a-fA-F]))?:? ?"
    r"(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?): ?(?P<words>[^\n]{1,160})"
)
_REFUSED = re.compile(
    r"Failed to initialize NVML: (?P<words>[^\n]{1,80})|NVMLError_\w{1,60}: (?P<raised>[^\n]{1,80})"
    r"|(?P<silent>NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver)"
    r"|(?P<missing>nvidia-smi: (?:command )?not found|[Cc]ommand '?nvidia-smi'? not found"
    r"|'nvidia-smi' is not recognized)"
)
MARKS = ("|", "(UUID: ", "Unable to determine")
_NO_DEVICES = "No devices were found"


def read(text: str) -> Snapshot | None:
    """The boards, the driver's versions, and the words of an nvidia-smi that refused after the last table."""
    boards = _boards(text) if any(mark in text for mark in MARKS) else {}
    driver = _driver(text)
    empty = _NO_DEVICES in text and not boards
    if not boards and driver is None and not empty:
        return None
    gpus = Gpus(boards=tuple(boards[index] for index in sorted(boards)), source="text") if boards or empty else None
    return Snapshot(gpus=gpus, driver=driver)


def _driver(text: str) -> Driver | None:
    header = _last(_HEADER, text, "NVIDIA-SMI")
    refused = _last(_REFUSED, text, "NVML", "NVIDIA-SMI has failed", "nvidia-smi")
    if header is None and refused is None:
        return None
    stands = refused is not None and (header is None or refused.start() > header.start())
    words = next((part for part in refused.groups() if part), None) if refused is not None and stands else None
    cuda = _CUDA.search(header[2]) if header else None
    version = header[1] if header else None
    return Driver(
        module_version=version,
        # After a refusal the libraries are others than those that drew the table.
        library_version=None if stands else version,
        cuda_version=cuda[1] if cuda else None,
        nvml_error=words.strip() if words else None,
    )


def _last(pattern: re.Pattern[str], text: str, *needles: str) -> re.Match[str] | None:
    """The last match, looked for only in lines that hold a needle."""
    best: re.Match[str] | None = None
    for needle in needles:
        place, tries = text.rfind(needle), 50
        while place >= 0 and tries:
            start = text.rfind("\n", 0, place) + 1
            match = pattern.search(text, start, min(len(text), place + 400))
            if match is not None:
                best = match if best is None or match.start() > best.start() else best
                break
            place, tries = text.rfind(needle, 0, start), tries - 1
    return best


@dataclass
class _State:
    """What the lines so far have told."""

    boards: dict[int, dict[str, Any]] = field(default_factory=dict)
    processes: dict[int, list[GpuProcess]] = field(default_factory=dict)
    instances: dict[int, list[MigInstance]] = field(default_factory=dict)
    lost: list[re.Match[str]] = field(default_factory=list)
    current: dict[str, Any] | None = None
    """The board whose rows are being read."""
    rows: int = 0
    listed: int | None = None
    """The board of `-L` whose MIG instances follow."""

    def board(self, index: int) -> dict[str, Any]:
        """The fields of a board; a dictionary that nobody sees where there are too many."""
        if len(self.boards) >= MOST_BOARDS and index not in self.boards:
            return {}
        return self.boards.setdefault(index, {"index": index})


def _boards(text: str) -> dict[int, Gpu]:
    state = _State()
    for line in text.splitlines():
        if "|" in line:
            if "NVIDIA-SMI" in line and "Version" in line:
                state = _State(lost=state.lost)  # What an older table says is over.
            else:
                _table_line(state, line)
        elif "UUID" in line:
            _listed_line(state, line)
        elif "Unable to determine" in line and len(state.lost) < MOST_BOARDS and (gone := _LOST.search(line)):
            state.lost.append(gone)
    return _told(state.boards, state.processes, state.instances, state.lost)


def _table_line(state: _State, line: str) -> None:
    cells = line.strip().strip("|").split("|")
    words = cells[0].split()
    if len(cells) > MOST_CELLS or len(words) > MOST_WORDS:
        return
    if len(cells) == 1:
        if (found := _process(words)) and len(told := state.processes.setdefault(found[0], [])) < MOST_PROCESSES:
            told.append(found[1])
    elif row := _first_row(words, cells):
        state.current, state.rows = state.board(row["index"]), 0
        state.current.update(row)
    elif len(words) == 4 and all(_is_index(word) for word in words) and (memory := _MEMORY.search(cells[1])):
        instances = state.instances.setdefault(int(words[0]), [])
        instances.append(MigInstance(memory_total_bytes=size(memory[2] + "MiB")))
    elif state.current is not None and state.rows < ROWS_BELOW:
        state.rows += 1
        _next_row(cells, state.current)


def _listed_line(state: _State, line: str) -> None:
    if named := _LISTED.match(line):
        state.listed = int(named[1])
        state.board(state.listed).update(name=named[2], uuid=named[3])
    elif state.listed is not None and (mig := _LISTED_MIG.match(line)):
        state.instances.setdefault(state.listed, []).append(MigInstance(name=f"MIG {mig[1]}", uuid=mig[2]))


def _is_index(word: str) -> bool:
    return word.isdecimal() and len(word) < 4


def _first_row(words: list[str], cells: list[str]) -> dict[str, Any] | None:
    """`|   0  NVIDIA H200      On  |   00000000:18:00.0 Off |    0 |`; the right part may be cut off."""
    bus = _BUS.match(cells[1])
    if bus is None or len(words) < 3 or not _is_index(words[0]) or words[-1] not in {"On", "Off", *_MODELS}:
        return None
    ecc = cells[2].strip() if len(cells) > 2 else ""
    board: dict[str, Any] = {
        "index": int(words[0]),
        "name": " ".join(words[1:-1]),
        "pci_bus_id": bus_id(bus[1]),
        "persistence_mode": None if words[-1] in _MODELS else words[-1] == "On",
    }
    if ecc.isdecimal() and len(ecc) < 16:
        board.update(ecc_mode=True, ecc_uncorrected_volatile=int(ecc))
    elif ecc in {"On", "Off"}:  # in MIG mode each instance counts for itself
        board.update(ecc_mode=ecc == "On")
    return board


def _next_row(cells: list[str], board: dict[str, Any]) -> None:
    """The row of loads, then the one of MIG, which drivers before 450 do not print."""
    if load := _LOAD.match(cells[0].strip()):
        board["temperature_c"] = whole(load["temperature"])
        board["performance_state"] = whole(load["state"].lstrip("P"))
    if power := _POWER.search(cells[0]):
        board.update(power_w=number(power[1]), power_limit_w=number(power[2]))
    if len(cells) > 1 and (memory := _MEMORY.search(cells[1])):
        board.update(memory_used_bytes=size(memory[1] + "MiB"), memory_total_bytes=size(memory[2] + "MiB"))
    right = cells[2].strip() if len(cells) > 2 else ""
    if "%" in right[:5]:
        rate = number(right)
        board["utilization_ratio"] = None if rate is None else rate / 100
    for words, mode in _MODES.items():
        if right.endswith(words):
            board["compute_mode"] = mode
    if right.rstrip("*") in {"Enabled", "Disabled"}:
        board["mig_mode"] = right.startswith("Enabled")


def _process(words: list[str]) -> tuple[int, GpuProcess] | None:
    """Board and process of `0 N/A N/A 2695172 C python 26167MiB`; drivers before 450 have no MIG columns."""
    at = next((place for place in (2, 4) if len(words) > place and words[place] in _KINDS), None)
    if at is None or not _is_index(words[0]) or not (words[at - 1].isdecimal() and len(words[at - 1]) < 11):
        return None
    if len(words) < at + 2:
        return None
    memory = size(words[-1]) if words[-1].endswith("MiB") else None
    name = words[at + 1 : -1] if memory is not None or words[-1] == "N/A" else words[at + 1 :]
    return int(words[0]), GpuProcess(
        pid=int(words[at - 1]), kind=_KINDS[words[at]], memory_bytes=memory, name=" ".join(name) or None
    )


def _told(
    found: dict[int, dict[str, Any]],
    processes: dict[int, list[GpuProcess]],
    instances: dict[int, list[MigInstance]],
    lost: list[re.Match[str]],
) -> dict[int, Gpu]:
    for index in sorted({*processes, *instances} - set(found))[: MOST_BOARDS - len(found)]:
        found[index] = {"index": index}
    boards = {
        index: Gpu(
            **fields,
            # WHY None without any row: in a container nvidia-smi lists no process, whoever uses the boards.
            processes=tuple(processes.get(index, ())) if processes else None,
            mig_instances=tuple(instances.get(index, ())),
        )
        for index, fields in found.items()
    }
    for gone in lost:
        bus = bus_id(gone["bus"])
        same = [index for index, board in boards.items() if board.pci_bus_id == bus]
        free = next(index for index in range(len(boards) + 1) if index not in boards)
        index = same[0] if same else int(gone["index"]) if gone["index"] else free
        words = " ".join(gone["words"].split())
        board = boards.get(index, Gpu(index=index, pci_bus_id=bus))
        boards[index] = msgspec.structs.replace(
            board, lost=True, error=f"Unable to determine the device handle: {words}"
        )
    return boards
