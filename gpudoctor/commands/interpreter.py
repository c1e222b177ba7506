"""Which Python is examined."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from gpudoctor.errors import UsageError


def choose(asked: str | None, environ: Mapping[str, str]) -> str:
    """The one asked for, else the active environment's, else our own where torch is beside us, else PATH's.

    The last is for a gpudoctor that has an environment to itself (pipx, uv tool). Raises UsageError where the one
    asked for is missing. Links are kept: a virtual environment's python is one.
    """
    if asked is not None:
        found = which(os.path.expanduser(asked))  # noqa: PTH111 - a name to look up on PATH, or a path
        if found is None:
            raise UsageError(f"--python {asked}: no such program")
        return os.path.abspath(found)  # noqa: PTH100 - Path.resolve would follow the link
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable)
        if not prefix:
            continue
        if Path(prefix).resolve() == Path(sys.prefix).resolve():
            return sys.executable
        if (python := which("python", path=f"{prefix}/bin")) is not None:
            return python
    if find_spec("torch") is not None:
        return sys.executable
    path = environ.get("PATH")
    return which("python", path=path) or which("python3", path=path) or sys.executable
