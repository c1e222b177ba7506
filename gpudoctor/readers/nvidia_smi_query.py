"""Read `nvidia-smi -q`, whole or any part of it, also where a paste has lost the indentation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus
from gpudoctor.readers.nvidia_smi_fields import BITS, PARTS, SECTIONS, TAKE, take_plain
from gpudoctor.readers.quantities import bus_id
from gpudoctor.snapshot import Snapshot

NAME = "nvidia-smi -q"
MOST_BOARDS = 256
LONGEST_LINE = 400

_BOARD = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_FORM = re.compile(r"^ {0,40}\S[^\n:]{0,60}? {1,60}: ", re.MULTILINE)

TELLING = frozenset(
    (
        *("Remapped Rows", "ECC Errors", "Retired Pages", "Fabric", "Clocks Throttle Reasons", "Clocks Event Reasons"),
        *("FB Memory Usage", "GPU Link Info", "MIG Mode", "Attached GPUs", "Power Readings", "ECC Mode", "Max Clocks"),
    )
)
"""Of which one at least is in any part that is worth pasting."""
VERSIONS = {
    "Driver Version": "module_version",
    "KMD Version": "module_version",
    "CUDA Version": "cuda_version",
    "CUDA UMD Version": "cuda_version",
}


@dataclass
class _State:
    """Where in the output the line being read stands."""

    boards: list[dict[str, Any]] = field(default_factory=list)
    driver: dict[str, str] = field(default_factory=dict)
    board: dict[str, Any] = field(default_factory=dict)
    section: str = ""
    part: str = ""
    """Heading inside the section."""

    def end_board(self) -> None:
        """The next line is another board's."""
        if self.board and len(self.boards) < MOST_BOARDS:
            self.boards.append(self.board)
        self.board, self.section, self.part = {}, "", ""


def read(text: str) -> Snapshot | None:
    """One Gpu a board; a part without the line that names its board makes one without a bus id."""
    if not any(section in text for section in TELLING) or _FORM.search(text) is None:
        return None
    state = _State()
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or len(stripped) > LONGEST_LINE:
            continue
        if stripped.startswith("GPU ") and (header := _BOARD.fullmatch(stripped)):
            state.end_board()
            state.board = {"pci_bus_id": bus_id(header[1])}
        else:
            _line(state, stripped)
    state.end_board()
    if not any(len(board) > 1 or "pci_bus_id" not in board for board in state.boards):
        return None
    return Snapshot(gpus=_gpus(state.boards), driver=_driver(state.driver))


def _line(state: _State, line: str) -> None:
    key, value = _split(line)
    if value is None:
        if line in SECTIONS:
            state.section, state.part = line, ""
        elif line in PARTS:
            # Older boards: Volatile, and in it Single Bit and Double Bit.
            state.part = f"{state.part.split()[0]} {line}" if line in BITS and state.part else line
    elif key in VERSIONS and not state.section:
        state.driver[VERSIONS[key]] = value
    elif key == "Processes" or (key in SECTIONS and value == "N/A"):
        state.section, state.part = "", ""
    elif not take_plain(state.board, state.section, key, value):
        take = TAKE.get(state.section)
        if take is not None:
            take(state.board, state.part, key, value)


def _split(line: str) -> tuple[str, str | None]:
    """Key and value; the value is None for a heading."""
    key, colon, value = line.partition(" :")
    if not colon:
        key, colon, value = line.partition(": ")
    return key.strip(), value.strip() if colon else None


def _gpus(boards: list[dict[str, Any]]) -> Gpus:
    found: dict[str, Gpu] = {}
    for board in boards:
        place = board.get("pci_bus_id") or f"board {len(found)}"
        gpu = _gpu(found[place].index if place in found else len(found), board)
        found[place] = gpu
    return Gpus(boards=tuple(found.values()), source="text")


def _gpu(index: int, board: dict[str, Any]) -> Gpu:
    fields = {name: value for name, value in board.items() if not name.startswith("_")}
    counts = board.get("_ecc", {})
    if "throttle_reasons" in fields:
        fields["throttle_reasons"] = tuple(name for name, active in fields["throttle_reasons"].items() if active)
    return Gpu(
        index=index,
        ecc_uncorrected_volatile=counts.get(("Volatile", "uncorrected")),
        ecc_uncorrected_aggregate=counts.get(("Aggregate", "uncorrected")),
        ecc_corrected_volatile=counts.get(("Volatile", "corrected")),
        processes=tuple(GpuProcess(**process) for process in board["_processes"]) if board.get("_processes") else None,
        **fields,
    )


def _driver(told: dict[str, str]) -> Driver | None:
    version = told.get("module_version")
    cuda = told.get("cuda_version")
    if version is None and cuda is None:
        return None
    return Driver(
        module_version=version,
        library_version=version,
        cuda_version=cuda if re.fullmatch(r"\d{1,3}\.\d{1,3}", cuda or "") else None,
    )
