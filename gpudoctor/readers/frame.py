"""Take a paste apart: bytes to text, what is around the tools' output taken off, every reader asked, one Snapshot made.

Each reader finds its own tool anywhere in the text, so prose, code fences and several tools in one file need no care.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from gpudoctor.readers import merge
from gpudoctor.readers import snapshot as snapshot_reader
from gpudoctor.readers.tools import READERS
from gpudoctor.snapshot import Snapshot, SnapshotError
from gpudoctor.tables import gpus

MOST_BYTES = 32 * 2**20
"""Of one file: of a longer one the beginning and the end are read."""
MOST_PARTS = 40
"""Looked at one by one for those that no reader knows."""
LARGE = 2**18
"""Characters from which on parts are not looked at one by one."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_()][A-Z0-9]?)"
)
_QUOTES = re.compile(r"^[ \t]{0,3}(?:(?!>>> )>[ \t]?){1,20}", re.MULTILINE)
_STAMPS = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z ", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]{0,8}(?:```|~~~)[^\n`]{0,80}$", re.MULTILINE)
_PROMPT = re.compile(
    r"^[ \t]{0,4}(?:\([\w.-]{1,40}\) ?)?(?:[\w.-]{1,40}@[\w.-]{1,60}[: ][^\n$#]{0,80})?\$ (\S[^\n]{0,200})$",
    re.MULTILINE,
)
_LONG_LINES = re.compile(r"^([^\n]{4000})[^\n]+", re.MULTILINE)
"""No tool writes longer ones, and cut lines keep every reader's work in proportion."""
_BARE = {"\u00a0": " ", "\u200b": "", "\ufeff": "", "\u2060": "", "\x00": "", "\x08": ""}


@dataclass(frozen=True)
class Reading:
    """What a case holds."""

    snapshot: Snapshot
    recognised: tuple[str, ...]
    """Names of the readers that found something, most specific first; empty: nothing of it is known."""
    unknown: tuple[str, ...] = ()
    """Parts that no reader knows, by their command or first line."""
    notes: tuple[str, ...] = ()
    """A reader that failed, a snapshot of a newer version."""


def decode(data: bytes) -> str:
    """UTF-8, UTF-16 as PowerShell writes it, else what can be read of it."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", errors="replace")
    if data[:200].count(0) > len(data[:200]) // 3:
        return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be", errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Old Windows and Latin-1 pages: their letters beyond ASCII are in no pattern that decides anything.
        return data.decode("utf-8", errors="replace")


def clean(text: str) -> str:
    """Without colours, quote marks, code fences, CI time stamps and odd line ends; the lines' own blanks stay."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    for letter, instead in _BARE.items():
        text = text.replace(letter, instead)
    if "&gt;" in text or "&quot;" in text or "&#" in text:
        text = html.unescape(text)
    if text.startswith(("> ", ">>", " >")) or "\n>" in text or "\n >" in text:
        text = _QUOTES.sub("", text)
    return _STAMPS.sub("", text) if "Z " in text else text


def read(texts: Iterable[str]) -> Reading:
    """One case of several texts."""
    cleaned: list[str] = []
    found: list[tuple[int, str, Snapshot]] = []
    notes: list[str] = []
    for text in texts:
        rest = clean(text)
        try:
            taken, rest = snapshot_reader.split(rest)
        except SnapshotError as error:
            notes.append(f"a gpudoctor snapshot that cannot be read: {error}")
            continue
        if taken is not None:
            found.append((-1, snapshot_reader.NAME, taken))
        cleaned.append(_LONG_LINES.sub(r"\1", rest))
    whole = "\n\n".join(cleaned)
    plain = _FENCE.sub("", whole)
    for rank, reader in enumerate(READERS):
        try:
            snapshot = reader.read(plain)
        except Exception as error:  # A defect of one reader must not cost what the others found.
            notes.append(f"the reader of {reader.name} failed, a defect of gpudoctor: {type(error).__name__}")
            continue
        if snapshot is not None:
            found.append((rank, reader.name, snapshot))
    snapshots = [snapshot for _, _, snapshot in found]
    return Reading(
        snapshot=_with_capabilities(merge.merged(snapshots)),
        recognised=tuple(dict.fromkeys(name for _, name, _ in found)),
        unknown=tuple(_unknown(whole)) if found and len(whole) < LARGE else (),
        notes=tuple(notes),
    )


def _with_capabilities(machine: Snapshot) -> Snapshot:
    """A board's compute capability by its name, which texts seldom tell."""
    if machine.gpus is None or machine.gpus.source == "nvml":
        return machine
    rows = {board.name: gpus.find(board.name) for board in machine.gpus.boards if board.compute_capability is None}
    boards = tuple(
        msgspec.structs.replace(board, compute_capability=row.compute_capability)
        if board.compute_capability is None and (row := rows.get(board.name)) is not None
        else board
        for board in machine.gpus.boards
    )
    runtime = machine.torch_runtime
    if runtime is not None and runtime.capabilities and boards and all(board.compute_capability for board in boards):
        # Messages name a model once, however many boards of it there are.
        runtime = msgspec.structs.replace(runtime, capabilities=None)
    gpus_fact = msgspec.structs.replace(machine.gpus, boards=boards)
    return msgspec.structs.replace(machine, gpus=gpus_fact, torch_runtime=runtime)


def _unknown(text: str) -> Iterator[str]:
    """Code blocks and commands with output that no reader knows anything of."""
    for count, (title, body) in enumerate(_parts(text)):
        if count == MOST_PARTS:
            return
        if not any(_knows(reader.read, f"{title}\n{body}") for reader in READERS):
            yield title.strip()[:80]


def _knows(read_one: object, part: str) -> bool:
    try:
        return callable(read_one) and read_one(part) is not None
    except Exception:  # Told already, when the whole text was read.
        return False


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """What stands in code fences, each cut at its prompts; the first line is its title."""
    pieces = _FENCE.split(text)
    # Every second piece is inside a fence; without fences all of it is one.
    for piece in pieces[1::2] if len(pieces) > 1 else pieces:
        places = [match.start() for match in _PROMPT.finditer(piece)]
        for start, end in zip([0, *places], [*places, len(piece)], strict=True):
            lines = [line for line in piece[start:end].splitlines() if line.strip()]
            if len(lines) > 1 and (start in places or len(pieces) > 1):
                yield lines[0], "\n".join(lines[1:])
