"""The agent: runs inside each process of the user's job, and waits there until torch is imported.

Standard library and torch only, Python 3.9 and newer. It is loaded from its folder under the name `gpudoctor_agent`,
so that the job's environment need not have gpudoctor; imports inside it are therefore relative.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional


def start(run_folder: str) -> None:
    """Begin as soon as the process has imported torch. Costs nothing in one that never does."""

    def begin(_: ModuleType) -> None:
        try:
            from .session import attach

            attach(run_folder)
        except Exception as error:  # or the job's `import torch` would fail of it
            _complain(run_folder, error)

    if "torch" in sys.modules:
        begin(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _After("torch", begin))


def _complain(run_folder: str, error: Exception) -> None:
    try:
        with open(os.path.join(run_folder, "agent-errors.log"), "a") as log:
            log.write(f"{os.getpid()}: {error!r}\n")
    except OSError:
        return


class _After:
    """A meta path finder that finds nothing of its own, and calls back once one module has been executed."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.call = call

    def find_spec(self, name: str, path: Any = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        execute = getattr(spec.loader, "exec_module", None)
        if execute is not None:

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self.call(module)

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign, union-attr]
        return spec
