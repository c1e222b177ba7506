"""Read the packages around torch: versions and requirements from their metadata, and whether their code loads."""

from __future__ import annotations

import os
import re
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.facts.packages import Package, Packages
from gpudoctor.probes import extensions
from gpudoctor.probes.extensions import EXTENSIONS, Ending
from gpudoctor.probes.interpreter import Interpreter, examine
from gpudoctor.probes.system import NotRead, System

if TYPE_CHECKING:
    import importlib.metadata

OTHERS = ("numpy", "nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "triton")
"""Known for their version alone."""
NAMES = tuple(sorted((*EXTENSIONS, *OTHERS)))
COMPILERS = ("cc", "gcc", "clang")
TAG = re.compile(r"\b(cu\d{2,3}|cpu|rocm[\d.]+)")
CUDA = re.compile(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", re.MULTILINE)
"""Of torch/version.py."""


@dataclass(frozen=True)
class Found:
    """An installed distribution, and the folder it lies in."""

    metadata: importlib.metadata.Distribution
    version: str
    folder: Path

    def requirement(self, name: str, interpreter: Interpreter) -> str | None:
        """The versions its metadata allow of a package, such as `==2.9.1`; None where they do not name it."""
        wanted = re.compile(rf"{name}\s*(?:\[[^]]*\])?\s*\(?(?P<versions>[<>=!~][^;)]*|)\)?\s*(?:;(?P<marker>.*))?$")
        matches = (wanted.match(line.strip()) for line in self.metadata.requires or ())
        versions = [match["versions"].strip() for match in matches if match and _applies(match["marker"], interpreter)]
        return ",".join(filter(None, versions)) if versions else None


def read(system: System) -> Packages:
    """What is installed for the interpreter under examination; first on its path wins, as in an import."""
    interpreter = examine(system)
    path = [str(system.path(entry)) for entry in interpreter.path]
    installed = {name: found for name in NAMES if (found := _find(name, path)) is not None}
    torch = _find("torch", path)
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


def _find(name: str, path: list[str]) -> Found | None:
    """Of several in one folder (stale leftovers of an upgrade) the one written last."""
    found: list[tuple[float, Found]] = []
    import importlib.metadata  # here, in the probe's own process: it costs a tenth of a quick check

    for metadata in importlib.metadata.distributions(name=name, path=path):
        folder = Path(str(metadata.locate_file("")))
        if found and folder != found[0][1].folder:
            break
        try:
            version = metadata.version
            written = _written(metadata)
        except Exception:  # noqa: S112 - without a version, without METADATA, not text: what a broken install leaves
            continue
        if version:
            found.append((written, Found(metadata, version, folder)))
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _written(metadata: importlib.metadata.Distribution) -> float:
    # Every installed distribution is a PathDistribution, whose folder has no public name.
    folder = getattr(metadata, "_path", None)
    return os.stat(folder).st_mtime if folder is not None else 0.0  # noqa: PTH116 - may be a zip's path


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


def _compiled(installed: dict[str, Found], interpreter: Interpreter, torch: Found | None) -> dict[str, list[str]]:
    known = {name: found for name, found in installed.items() if name in EXTENSIONS}
    if not known or interpreter.platform != "linux":
        return {}
    cuda = _torch_cuda(torch) if torch is not None else None
    return {
        name: extensions.compiled(EXTENSIONS[name], found.folder, interpreter, cuda) for name, found in known.items()
    }


def _torch_cuda(torch: Found) -> str | None:
    match = CUDA.search(_text(torch.folder / "torch" / "version.py"))
    return match.group(1) if match else None


def _trial(
    system: System,
    interpreter: Interpreter,
    torch: Found | None,
    installed: dict[str, Found],
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


def _package(name: str, found: Found, interpreter: Interpreter, compiled: bool, ending: Ending | None) -> Package:
    # A trial that ran out of time tells nothing.
    tried = ending is not None and ending.signal != signal.SIGALRM
    return Package(
        name=name,
        version=found.version,
        requires_torch=found.requirement("torch", interpreter),
        requires_python=found.metadata.metadata["Requires-Python"] or None,
        compiled=compiled,
        imported=(ending == Ending()) if tried else None,
        import_error=ending.error if tried and ending else None,
        signal=ending.signal if tried and ending else None,
        local_cuda=_tag(name, found),
    )


def _tag(name: str, found: Found) -> str | None:
    """The metadata of wheels on PyPI leave it out; their version.py has it."""
    texts = (found.version.partition("+")[2], _text(found.folder / name.replace("-", "_") / "version.py"))
    local = texts[0] or "".join(
        re.findall(r"^__version__\b[^=]*= *['\"][^'\"+]*\+([^'\"]*)", texts[1], re.MULTILINE)[:1]
    )
    match = TAG.search(local)
    return match.group(1) if match else None


def _torch_requires(torch: Found, interpreter: Interpreter) -> dict[str, str]:
    triton = torch.requirement("triton", interpreter)
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
