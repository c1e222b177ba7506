"""Whole reports, kept as files: `GOLDEN=write pytest tests/reports` writes them anew, then read the diff."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text is that of tests/golden/NAME."""
    file = FOLDER / name
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
