"""Lines on a terminal: wrapped to its width, in colours and letters it has. The only file that knows rich."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from gpudoctor.reports.plain import plain, to_ascii

WIDEST = 120
"""Longer lines are hard to read."""
NARROW = 40
"""Below it there is no room for two columns."""


class Page:
    """Lines wrapped to a width, with a hanging indent."""

    def __init__(self, width: int = 80, colour: bool = False, ascii_only: bool = False) -> None:
        self.width = max(20, min(width, WIDEST))
        self.ascii_only = ascii_only
        self._console = Console(
            file=io.StringIO(),
            width=self.width,
            force_terminal=colour,
            force_interactive=False,
            color_system="standard" if colour else None,
            no_color=not colour,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def blank(self) -> None:
        """An empty line."""
        self._line(Text(""))

    def paragraph(self, text: str, style: str = "", *, label: str = "", label_style: str = "") -> None:
        """Wrapped words, behind a label that only the first line has."""
        label = to_ascii(label) if self.ascii_only else label
        indent = len(label) if self.width >= NARROW else 2
        words = Text(self.clean(text), style)
        if self.width < NARROW:
            # No room for a column: the label is the first of the words.
            words, label = Text.assemble((label.strip() + " " * bool(label), label_style), words), ""
        for number, line in enumerate(words.wrap(self._console, self.width - indent, overflow="fold")):
            line.rstrip()
            first = label if number == 0 else " " * indent
            self._line(Text.assemble((first, label_style), line))

    def entry(self, label: str, text: str) -> None:
        """A label in a column of its own, then the text."""
        self.paragraph(text, label=f"  {label:<11}", label_style="dim")

    def command(self, command: str, label: str = "") -> None:
        """Never broken, so that it can be pasted."""
        for number, line in enumerate(command.splitlines()):
            first = f"  {label if number == 0 else '':<11}" if self.width >= NARROW else "  "
            self._line(Text.assemble((first, "dim"), (self.clean(line), "bold")))

    def line(self, text: str) -> None:
        """One line of our own words, its spaces kept, cut where the page ends."""
        text = to_ascii(text) if self.ascii_only else text
        self._line(Text(text if len(text) <= self.width else text[: self.width - 3] + "..."))

    def pieces(self, pieces: Iterable[tuple[str, str]]) -> None:
        """One line of our own, each piece with its style; cut where the page ends."""
        line = Text.assemble(*((to_ascii(text) if self.ascii_only else text, style) for text, style in pieces))
        line.rstrip()
        line.truncate(self.width)
        self._line(line)

    def clean(self, text: str) -> str:
        """Without what a terminal would obey, and with what it can show."""
        return to_ascii(plain(text)) if self.ascii_only else plain(text)

    def text(self) -> str:
        """All lines so far."""
        file = self._console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
