"""The interpreter under examination: its version, and where it looks for modules."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from shutil import which

import msgspec

from gpudoctor.probes.system import NotRead, System

# WHY nothing beyond sys and os, which are loaded already: a json.py in the user's folder must not answer for Python's.
ASK = """
import os, sys
print("\\n@gpudoctor " + repr({
    "executable": sys.executable, "version": ".".join(map(str, sys.version_info[:3])), "path": tuple(sys.path),
    "prefix": sys.prefix, "base_prefix": getattr(sys, "base_prefix", sys.prefix), "platform": sys.platform,
    "machine": os.uname().machine if hasattr(os, "uname") else "", "implementation": sys.implementation.name,
    "abi_flags": getattr(sys, "abiflags", "")}))
"""
MARK = "@gpudoctor "


class Interpreter(msgspec.Struct, frozen=True):
    """One Python and its environment."""

    executable: str
    version: str
    """`major.minor.micro`."""
    path: tuple[str, ...]
    """sys.path without the script's folder: PYTHONPATH, standard library, site-packages and what .pth files add."""
    prefix: str = ""
    base_prefix: str = ""
    """Differs from `prefix` in a virtual environment."""
    platform: str = "linux"
    """sys.platform: `linux`, `darwin` or `win32`."""
    machine: str = ""
    """Instruction set; empty where it is not known."""
    implementation: str = "cpython"
    abi_flags: str = ""
    """`t` in a free-threaded build."""

    @property
    def tag(self) -> str:
        """As wheels name it, such as `cp311` or `cp313t`."""
        major, minor = self.version.split(".")[:2]
        return f"cp{major}{minor}" + ("t" if "t" in self.abi_flags else "")

    @property
    def site_packages(self) -> tuple[str, ...]:
        """The folders of `path` that hold installed packages, in the order they are searched."""
        return tuple(entry for entry in self.path if entry.rstrip("/\\").endswith(("site-packages", "dist-packages")))


def examine(system: System) -> Interpreter:
    """The interpreter `system.python` names. It is run only where it is not the one we run in ourselves.

    Below a recorded root its folders are read instead. Raises NotRead where it is missing or does not answer in 5 s.
    """
    if not system.live:
        return _recorded(system)
    ours = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    theirs = {name: value for name, value in system.environ.items() if name.startswith("PYTHON")}
    if os.path.abspath(system.python) == os.path.abspath(sys.executable) and ours == theirs:  # noqa: PTH100 - no links
        return _our_own()
    executable = which(system.python, path=system.environ.get("PATH", os.defpath))
    if executable is None:
        raise NotRead(f"{system.python} not found")
    key = (executable, str(Path.cwd()), tuple(sorted(theirs.items())))
    if key not in _ANSWERS:
        _ANSWERS[key] = _ask(system, executable)
    return _ANSWERS[key]


_ANSWERS: dict[tuple[object, ...], Interpreter] = {}
"""By executable, working folder and Python's own variables."""


def _our_own() -> Interpreter:
    # The first entry is the folder of the script that runs (ours), which the interpreter adds unless told not to.
    added = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    return Interpreter(
        executable=sys.executable,
        version=".".join(map(str, sys.version_info[:3])),
        path=tuple(entry for entry in sys.path[1 if added else 0 :] if entry),
        prefix=sys.prefix,
        base_prefix=sys.base_prefix,
        platform=sys.platform,
        machine=os.uname().machine if hasattr(os, "uname") else "",
        implementation=sys.implementation.name,
        abi_flags=getattr(sys, "abiflags", ""),
    )


def _ask(system: System, executable: str) -> Interpreter:
    output = system.run([executable, "-c", ASK])
    line = next((line for line in reversed(output.splitlines()) if line.startswith(MARK)), None)
    if line is None:
        raise NotRead(f"{executable} gave no answer")
    answer = ast.literal_eval(line[len(MARK) :])
    answer["executable"] = answer["executable"] or executable
    answer["path"] = tuple(entry for entry in answer["path"] if entry)
    return Interpreter(**answer)


def _recorded(system: System) -> Interpreter:
    """From the folders around the executable: `<prefix>/bin/python`, `<prefix>/lib/python3.12/site-packages`."""
    prefix = os.path.dirname(os.path.dirname(system.python))  # noqa: PTH120 - the root's own path, not this machine's
    libraries = [entry for entry in system.glob(f"{prefix}/lib/python3.*") if entry.is_dir()]
    if not libraries:
        raise NotRead(f"{system.python} not found")
    folder = libraries[-1].name
    names = [name for name in ("site-packages", "dist-packages") if (libraries[-1] / name).is_dir()]
    return Interpreter(
        executable=system.python,
        version=_version_of_environment(system, prefix) or folder.removeprefix("python").rstrip("t") + ".0",
        path=(f"{prefix}/lib/{folder}", *(f"{prefix}/lib/{folder}/{name}" for name in names)),
        prefix=prefix,
        base_prefix=prefix,
        abi_flags="t" if folder.endswith("t") else "",
    )


def _version_of_environment(system: System, prefix: str) -> str | None:
    for line in (system.text_or_none(f"{prefix}/pyvenv.cfg") or "").splitlines():
        name, _, value = line.partition("=")
        if name.strip() in {"version", "version_info"}:
            return ".".join(value.strip().split(".")[:3])
    return None
