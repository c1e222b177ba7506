"""Run in the interpreter under examination: load compiled extensions beside torch's libraries, and tell which do not.

Passed as text to `python -c`, so nothing of gpudoctor has to be importable there. Standard library and torch only,
Python 3.9 and newer. Each trial is a fork, so that an extension that crashes takes nobody along.

The first round loads torch's libraries alone, a fraction of an import's time. Only what fails there, and packages
that hold no compiled file, are tried again after a real `import torch`, whose word counts.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # WHY: the working folder is the user's, and comes first: their json.py is not ours.
    sys.path[:] = [entry for entry in sys.path if entry]
import ctypes
import importlib
import json
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

MARK = "@gpudoctor "


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """`asked`: folder of torch, package → files, package → module. Told: package → {error, signal}; empty is well."""
    files: dict[str, list[str]] = asked["files"]
    modules: dict[str, str] = asked["modules"]
    if load_torch(asked["torch"]) is None:
        told = {name: trial(partial(load, paths), asked["seconds"]) for name, paths in files.items()}
    else:
        told = {name: {"error": "not tried"} for name in files}
    again: dict[str, Callable[[], object]] = {}
    again.update({name: partial(load, files[name]) for name, ending in told.items() if ending})
    again.update({name: partial(importlib.import_module, module) for name, module in modules.items()})
    if again:
        importlib.import_module("torch")
        told.update({name: trial(action, asked["seconds"]) for name, action in again.items()})
    return told


def load_torch(folder: str) -> str | None:
    """As `import torch` loads its libraries. Why not, where they do not load."""
    try:
        ctypes.CDLL(folder + "/lib/libtorch_global_deps.so", ctypes.RTLD_GLOBAL)
        ctypes.CDLL(folder + "/lib/libtorch_python.so")
    except OSError as error:
        return str(error)
    return None


def load(paths: list[str]) -> None:
    """Every undefined symbol is looked up at once."""
    for path in paths:
        ctypes.CDLL(path, os.RTLD_NOW)


def trial(action: Callable[[], object], seconds: int) -> dict[str, Any]:
    """How it ended in a fork: `{}`, `{"error": …}` or `{"signal": …}`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        be_tried(action, writing, seconds)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as pipe:
        error = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"error": error} if error else {}


def be_tried(action: Callable[[], object], writing: int, seconds: int) -> None:
    """Never returns."""
    try:
        signal.alarm(seconds)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            action()
        except BaseException as error:  # SystemExit too: the trial is to tell it, not to follow it
            lines = str(error).strip().splitlines() or [""]
            words = lines[0] if isinstance(error, OSError) else type(error).__name__ + ": " + lines[0]
            os.write(writing, words.encode(errors="replace")[:2000])
    finally:
        os._exit(0)


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    print("\n" + MARK + json.dumps(answer), flush=True)
    os._exit(0)  # torch's libraries are not torn down: that takes time, and may fail
