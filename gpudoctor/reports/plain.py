"""Make words of the machine fit to be printed: no control characters, no line breaks, letters the terminal has."""

from __future__ import annotations

import re

# Control characters, surrogates, and the marks that turn the direction of writing.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_ASCII = str.maketrans(
    {"✖": "x", "▲": "!", "•": "-", "✔": "+", "×": "x", "·": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "≠": "!="}
    | {"–": "-", "—": "-", "°": " deg ", "µ": "u", "“": '"', "”": '"', "’": "'"}
)  # fmt: skip


def plain(text: str) -> str:
    """One line; what a terminal would obey or could not show is written out: `\\x1b`."""
    return _written_out(" ".join(text.split()))


def plain_lines(text: str) -> str:
    """As `plain`, but lines and the spaces in them stay."""
    return "\n".join(_written_out(line.replace("\t", "    ")) for line in text.splitlines())


def _written_out(text: str) -> str:
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text)


def to_ascii(text: str) -> str:
    """Our own signs as ASCII, all else beyond ASCII written out: `\\xe9`."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
