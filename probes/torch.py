"""Read the torch installation from its files: nothing is imported, nothing of it is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import which

from gpudoctor.facts.torch import TorchBuild
from gpudoctor.probes.interpreter import Interpreter, examine
from gpudoctor.probes.system import System
from gpudoctor.tables import torch_releases

PIN = re.compile(
    r"^Requires-Dist: nvidia-(cublas|cudnn|nccl|nvjitlink|cuda-runtime)(?:-cu\d+)? ?\(?==([\d.]+\d)", re.MULTILINE
)
OFFICIAL = re.compile(r"\d+\.\d+\.\d+\+cu(\d+)(\d)")
"""The version of a wheel of PyTorch's own: distributions and self-built ones choose their own GPU code."""


def read(system: System) -> TorchBuild:
    """What version.py and the wheel's metadata say. `installed` is False where neither is anywhere on the path."""
    interpreter = examine(system)
    about = metadata(system.path(entry) for entry in interpreter.path)
    folders = list(_folders(system, interpreter.path))
    # The metadata's own folder, so that a stray copy before it counts as shadowing and not as the installation.
    home = next((folder for folder in folders if about is not None and folder.parent == about.parent), None)
    home = home or next(iter(folders), None)
    version = _version(home) if home is not None else {}
    if "__version__" not in version and about is not None:
        version["__version__"] = re.sub(r"^torch-|(-py[\d.]+)?\.(dist|egg)-info$", "", about.name)
    installed = about is not None or "__version__" in version
    build = _build(version, interpreter) if installed and home is not None else None
    return TorchBuild(
        installed=installed,
        version=version.get("__version__"),
        cuda=version.get("cuda"),
        rocm=version.get("hip"),
        build=build,
        path=_told(system, home) if installed and home is not None else None,
        python=interpreter.executable,
        python_version=interpreter.version,
        python_tag=interpreter.tag,
        python_tags=_tags(about),
        path_python=_python_on_path(system, interpreter),
        arch_list=_arch_list(version.get("__version__"), interpreter) if build == "cuda" else None,
        pins=pins(about),
        shadowed_by=_shadow(system, home, folders),
    )


def metadata(path: Iterable[Path]) -> Path | None:
    """The .dist-info (or .egg-info) folder of torch that comes first along a path."""
    # WHY not importlib.metadata: its import alone takes as long as all of this probe.
    for folder in path:
        for found in sorted(folder.glob("torch-*.*-info")):
            if found.is_dir():
                return found
    return None


def pins(about: Path | None) -> dict[str, str]:
    """Library → version that the metadata requires exactly, cuda-toolkit's own pins included (torch 2.11 and newer)."""
    if about is None:
        return {}
    texts = [_text(about / "METADATA")]
    if "\nRequires-Dist: cuda-toolkit" in texts[0]:
        texts += [_text(toolkit) for toolkit in about.parent.glob("cuda_toolkit-*.dist-info/METADATA")]
    names = {"cuda-runtime": "cudart"}
    return {names.get(name, name): pin for text in texts for name, pin in PIN.findall(text)}


def _text(file: Path) -> str:
    """Empty where the file cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _folders(system: System, path: tuple[str, ...]) -> Iterator[Path]:
    """What `import torch` could find along a path: packages and single files, in the order of the import."""
    for entry in path:
        folder = system.path(entry)
        # A folder without __init__.py hides nothing: a regular package further on wins over it.
        candidates = (folder / "torch", folder / "torch.py")
        yield from (found for found in candidates if found.is_file() or (found / "__init__.py").is_file())


def _version(home: Path) -> dict[str, str]:
    """The texts that torch/version.py assigns; those it sets to None are left out."""
    try:
        tree = ast.parse((home / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    texts: dict[str, str] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            texts.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return texts


def _build(version: dict[str, str], interpreter: Interpreter) -> str | None:
    for name, build in (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu")):
        if version.get(name):
            return build
    number = version.get("__version__")
    # A file cut off before its `cuda` looks like a CPU build; a whole one ends with `git_version`.
    if number is None or not (number.endswith("+cpu") or "git_version" in version):
        return None
    return "mps" if interpreter.platform == "darwin" else "cpu"


def _tags(about: Path | None) -> tuple[str, ...]:
    lines = _text(about / "WHEEL").splitlines() if about is not None else []
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))


def _arch_list(version: str | None, interpreter: Interpreter) -> tuple[str, ...] | None:
    official = OFFICIAL.fullmatch(version or "")
    if official is None or version is None or interpreter.platform != "linux":
        return None
    row = torch_releases.code(version, ".".join(official.groups()), interpreter.machine or "x86_64")
    return row.arch_list if row is not None else None


def _shadow(system: System, home: Path | None, folders: list[Path]) -> str | None:
    here = _folders(system, (os.getcwd(),)) if system.live else iter(())  # noqa: PTH109 - a text, as sys.path has it
    first = next((folder for folder in (*here, *folders) if home is not None), None)
    if first is None or home is None or first == home or os.path.realpath(first) == os.path.realpath(home):
        return None
    return _told(system, first)


def _told(system: System, path: Path) -> str:
    return str(path) if system.live else "/" + str(path.relative_to(system.root))


def _python_on_path(system: System, interpreter: Interpreter) -> str | None:
    if not system.live:
        return None
    found = which("python", path=system.environ.get("PATH", os.defpath))
    if found is None:
        return None
    with Path(found).open("rb") as file:
        if file.read(2) == b"#!":
            return None
    return interpreter.executable if _environment(found) == _environment(interpreter.executable) else found


def _environment(executable: str) -> str:
    """The virtual environment's folder, else the file that all links to an interpreter end at."""
    # Links are not followed first: a virtual environment's python is itself a link to the one it was made from.
    folder = Path(os.path.realpath(os.path.dirname(executable)))  # noqa: PTH120 - as above
    if any((place / "pyvenv.cfg").is_file() for place in (folder, folder.parent)):
        return str(folder)
    return os.path.realpath(executable)
