"""Read the packages around torch: versions and requirements from their metadata, and whether their code loads."""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path

from gpudoctor.facts.packages import Package, Packages
from gpudoctor.probes import extensions
from gpudoctor.probes.distributions import Distribution, find
from gpudoctor.probes.extensions import EXTENSIONS, Ending
from gpudoctor.probes.interpreter import Interpreter, examine
from gpudoctor.probes.system import NotRead, System

OTHERS = ("numpy", "nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "triton")
"""Known for their version alone."""
NAMES = tuple(sorted((*EXTENSIONS, *OTHERS)))
COMPILERS = ("cc", "gcc", "clang")
TAG = re.compile(r"\b(cu\d{2,3}|cpu|rocm[\d.]+)")
CUDA = re.compile(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", re.MULTILINE)
"""Of torch/version.py."""


def read(system: System) -> Packages:
    """What is installed for the interpreter under examination; first on its path wins, as in an import."""
    interpreter = examine(system)
    installed = find((*NAMES, "torch"), (system.path(entry) for entry in interpreter.path))
    torch = installed.pop("torch", None)
    unread: dict[str, str] = {}
    files = _compiled(installed, interpreter, torch)
    endings: dict[str, Ending] = {}
    try:
        endings = _trial(system, interpreter, torch, installed, files)
    except NotRead as error:
        unread["extensions"] = str(error)
    if slow := [name for name, ending in endings.items() if ending.signal == signal.SIGALRM]:
        unread["extensions"] = f"{', '.join(slow)}: no answer in {extensions.ONE_TRIAL_S} s"
    return Packages(
        installed=tuple(
            _package(name, found, interpreter, bool(files.get(name)), endings.get(name))
            for name, found in installed.items()
        ),
        compilers=_compilers(system, interpreter),
        torch_requires=None if torch is None else _torch_requires(torch, interpreter),
        unread=unread,
    )


def requirement(distribution: Distribution, name: str, interpreter: Interpreter) -> str | None:
    """The versions its metadata allow of a package, such as `==2.9.1`; None where they do not name it."""
    wanted = re.compile(rf"{name}\s*(?:\[[^]]*\])?\s*\(?(?P<versions>[<>=!~][^;)]*|)\)?\s*(?:;(?P<marker>.*))?$")
    matches = (wanted.match(line) for line in distribution.all_of("Requires-Dist"))
    versions = [match["versions"].strip() for match in matches if match and _applies(match["marker"], interpreter)]
    return ",".join(filter(None, versions)) if versions else None


def _applies(marker: str | None, interpreter: Interpreter) -> bool:
    """Whether a requirement's condition holds for the interpreter."""
    if not marker or "extra" in marker:
        return not marker
    from packaging.markers import InvalidMarker, Marker

    try:
        minor = ".".join(interpreter.version.split(".")[:2])
        return Marker(marker).evaluate({"python_version": minor, "python_full_version": interpreter.version})
    except InvalidMarker:
        return False


def _compiled(
    installed: dict[str, Distribution], interpreter: Interpreter, torch: Distribution | None
) -> dict[str, list[str]]:
    known = {name: found for name, found in installed.items() if name in EXTENSIONS}
    if not known or interpreter.platform != "linux":
        return {}
    cuda = _torch_cuda(torch) if torch is not None else None
    return {
        name: extensions.compiled(EXTENSIONS[name], found.folder, interpreter, cuda) for name, found in known.items()
    }


def _torch_cuda(torch: Distribution) -> str | None:
    match = CUDA.search(_text(torch.folder / "torch" / "version.py"))
    return match.group(1) if match else None


def _trial(
    system: System,
    interpreter: Interpreter,
    torch: Distribution | None,
    installed: dict[str, Distribution],
    files: dict[str, list[str]],
) -> dict[str, Ending]:
    """Of every package that holds code for torch; nothing is run where none is installed."""
    modules = {
        name: module
        for name, paths in files.items()
        if not paths
        and (module := EXTENSIONS[name].module)
        and (installed[name].folder / module / "__init__.py").is_file()
    }
    held = {name: paths for name, paths in files.items() if paths}
    if not (held or modules) or torch is None or system.quick or not system.live:
        return {}
    return extensions.load(system, interpreter, torch.folder / "torch", held, modules)


def _package(
    name: str, found: Distribution, interpreter: Interpreter, compiled: bool, ending: Ending | None
) -> Package:
    # A trial that ran out of time tells nothing.
    tried = ending is not None and ending.signal != signal.SIGALRM
    return Package(
        name=name,
        version=found.version,
        requires_torch=requirement(found, "torch", interpreter),
        requires_python=found.header("Requires-Python") or None,
        compiled=compiled,
        imported=(ending == Ending()) if tried else None,
        import_error=ending.error if tried and ending else None,
        signal=ending.signal if tried and ending else None,
        local_cuda=_tag(name, found),
    )


def _tag(name: str, found: Distribution) -> str | None:
    """The metadata of wheels on PyPI leave it out; their version.py has it."""
    texts = (found.version.partition("+")[2], _text(found.folder / name.replace("-", "_") / "version.py"))
    local = texts[0] or "".join(
        re.findall(r"^__version__\b[^=]*= *['\"][^'\"+]*\+([^'\"]*)", texts[1], re.MULTILINE)[:1]
    )
    match = TAG.search(local)
    return match.group(1) if match else None


def _torch_requires(torch: Distribution, interpreter: Interpreter) -> dict[str, str]:
    triton = requirement(torch, "triton", interpreter)
    return {"triton": triton} if triton else {}


def _compilers(system: System, interpreter: Interpreter) -> tuple[str, ...] | None:
    """None on Windows, whose compilers are not on PATH."""
    if interpreter.platform == "win32":
        return None
    folders = [folder for folder in system.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    chosen = shlex.split(system.environ.get("CC", ""), posix=False)[:1]
    names = dict.fromkeys((*chosen, *COMPILERS))
    return tuple(name for name in names if any(_executable(system, folder, name) for folder in folders))


def _executable(system: System, folder: str, name: str) -> bool:
    # A name with a folder of its own (CC=/opt/gcc/bin/gcc) is not looked for in others.
    path = system.path(name if name.startswith("/") else f"{folder}/{name}")
    return path.is_file() and os.access(path, os.X_OK)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
