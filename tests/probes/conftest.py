"""Machines written down file by file."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from gpudoctor.probes.system import System

Record = Callable[[dict[str, str]], System]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Makes a System of paths and their texts, each time another machine."""
    numbers = count()

    def make(files: dict[str, str]) -> System:
        root = tmp_path / f"machine{next(numbers)}"
        root.mkdir()
        for path, text in files.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text + "\n", encoding="utf-8")
        return System(root=root, environ={})

    return make
