"""Read what the dynamic loader says: symbols and libraries that are missing, and the paths that ldd shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import LoadedVersion, TorchRuntime
from gpudoctor.snapshot import Snapshot

MOST_ERRORS = 100
LONGEST_LINE = 2000

NEEDLES = ("undefined symbol", "cannot open shared object file", "not defined in file", "' not found (required by")
_SYMBOL = re.compile(r"(?P<path>[^\s:'\"]{1,400}\.so[.\d]{0,20}): undefined symbol: (?P<symbol>\w{1,300})[^\n]{0,120}")
_NO_LIBRARY = re.compile(r"(?P<library>lib[\w+-]{1,60}\.so[.\d]{0,20}): cannot open shared object file")
_NO_VERSION = re.compile(
    r"(?:(?P<path>[^\s:'\"]{1,400}): )?symbol (?P<symbol>\w{1,120}),? version \S{1,60} "
    r"not defined in file \S{1,80}"
)
_REQUIRED = re.compile(r"version [`'](?P<version>[\w.]{1,40})' not found \(required by (?P<path>[^\s)]{1,400})\)")
_FRAME = re.compile(r'File "(?P<path>[^"\n]{1,400})", line \d{1,7}')
_PACKAGES = re.compile(r"(?:site|dist)-packages/(?P<name>[\w.-]{1,100})")
_EXTENSIONS = re.compile(r"torch_extensions/(?:[\w.-]{1,60}/){1,3}(?P<name>\w{1,80})\.so")
_LDD = re.compile(r"^\s{0,16}(lib(\w{1,40})\.so[.\d]{0,20}) => (/\S{1,400}) \(0x", re.MULTILINE)
_ECHOED = re.compile(r"echo \"?\$\{?LD_LIBRARY_PATH\}?\"?[ \t]{0,8}\n([^\s$#]{1,2000})")

FILES = {
    "flash_attn_2_cuda": "flash-attn",
    "flash_attn_cuda": "flash-attn",
    "dropout_layer_norm": "flash-attn",
    "amp_C": "apex",
    "apex_C": "apex",
    "fused_layer_norm_cuda": "apex",
    "fused_weight_gradient_mlp_cuda": "apex",
    "selective_scan_cuda": "mamba-ssm",
    "causal_conv1d_cuda": "causal-conv1d",
}
"""Compiled files that stand beside their package's folder → the package, as PyPI names it."""
LIBRARIES = {"nvJitLink": "nvjitlink", "cudnn": "cudnn", "nccl": "nccl", "cublas": "cublas", "cudart": "cudart"}
"""As file names have it → as our facts do."""


def read(text: str) -> Snapshot | None:
    """Errors of torch's own libraries go to torch's import, others to their package."""
    if not any(needle in text for needle in (*NEEDLES, " => /")):
        return None
    torch_error: str | None = None
    packages: dict[str, Package] = {}
    for error, path in _errors(text):
        name = _package(path)
        if name is None or (name == "torch" and torch_error is not None):
            continue
        if name == "torch":
            torch_error = error
        else:
            packages.setdefault(name, Package(name=name, compiled=True, imported=False, import_error=error))
    libraries, folders = _ldd(text), _ECHOED.search(text)
    if torch_error is None and not packages and not libraries:
        return None
    return Snapshot(
        torch_runtime=TorchRuntime(
            stage="import" if torch_error else None, error=torch_error, libraries=libraries or None
        )
        if torch_error or libraries
        else None,
        packages=Packages(installed=tuple(packages.values())) if packages else None,
        libraries=Libraries(ld_library_path=tuple(filter(None, folders[1].split(":")))) if folders else None,
    )


def _errors(text: str) -> Iterator[tuple[str, str]]:
    """Each error in one line, and the file that could not be loaded (or the code that asked for it)."""
    left = MOST_ERRORS
    for needle in NEEDLES:
        place = text.find(needle)
        while place >= 0 and left > 0:
            left -= 1
            start = max(text.rfind("\n", 0, place) + 1, place - LONGEST_LINE // 2)
            end = text.find("\n", place)
            end = min(end if end >= 0 else len(text), start + LONGEST_LINE)
            line = text[start:end]
            if match := _SYMBOL.search(line) or _REQUIRED.search(line):
                yield _said(line, match), match["path"]
            elif match := _NO_VERSION.search(line):
                yield _said(line, match), match["path"] or _asking(text, start)
            elif match := _NO_LIBRARY.search(line):
                yield _said(line, match), _asking(text, start)
            place = text.find(needle, end)


def _said(line: str, match: re.Match[str]) -> str:
    """With the exception's name where it stands before."""
    kind = re.search(r"\b(ImportError|OSError): [^\n]{0,200}$", line[: match.start()])
    return (f"{kind[1]}: " if kind else "") + match.group()


def _asking(text: str, end: int) -> str:
    """The innermost frame of the traceback above; empty where there is none."""
    frames = _FRAME.findall(text[max(0, end - 3000) : end])
    outside = [path for path in frames if "/ctypes/" not in path and "importlib" not in path]
    return outside[-1] if outside else ""


def _package(path: str) -> str | None:
    """`torch` for its own libraries and NVIDIA's wheels below it; None where the path does not tell."""
    if match := _EXTENSIONS.search(path):
        return "deepspeed" if match["name"] in {"cpu_adam", "fused_adam", "utils", "async_io"} else match["name"]
    match = _PACKAGES.search(path)
    if match is None:
        return "torch" if re.search(r"/lib(?:torch|c10)\w{0,20}\.so", path) else None
    name = match["name"]
    if name in {"torch", "nvidia"}:
        return "torch"
    if name.endswith(".egg"):
        name = name.partition("-")[0]
    stem = name.partition(".")[0]
    return FILES.get(stem, re.sub(r"[-_.]+", "-", stem).lower())


def _ldd(text: str) -> tuple[LoadedVersion, ...]:
    """CUDA libraries that ldd resolved, by their last path."""
    if " => /" not in text:
        return ()
    found = {LIBRARIES[match[2]]: match[3] for match in _LDD.finditer(text) if match[2] in LIBRARIES}
    return tuple(LoadedVersion(name=name, path=path) for name, path in found.items())
