"""Rules on code compiled against torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.packages import Package
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.versions import torch_version
from gpudoctor.snapshot import Snapshot

OWN_RULES = ("torchvision", "torchaudio")
SYMBOL = re.compile(r"undefined symbol: (\w+)(?!.*version (?:GLIBC|CXXABI))")
"""Not one of the C++ runtime, which is another matter."""
TORCH = re.compile(r"c10|caffe2|_ZNK?2at|torch|THP")
VENDOR = re.compile(r"nccl|cudnn|cublas|cusparse|(?:__)?nvJitLink|nvrtc|cuda")
"""Symbols of NVIDIA's libraries are the matter of the LIB rules."""
PYTHON = re.compile(r"_?Py[A-Z_]")
NO_LIBRARY = re.compile(r"\b(lib(?:torch|c10)\w*)\.so\S*: cannot open shared object")
NO_CUDA_LIBRARY = re.compile(r"\blib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d+)\S*: cannot open shared object")
OTHER_BUILD = re.compile(r"was built for: PyTorch|Could not find the bitsandbytes CUDA binary", re.IGNORECASE)
NO_CODE = re.compile(r"ModuleNotFoundError: No module named '\w+_cuda'")
OUT_OF_MEMORY = 9
"""SIGKILL: what ended the trial was no fault of the package."""


@rule(
    "TOR009",
    "extension-abi",
    Severity.ERROR,
    why="code compiled against torch's C++ interface loads beside the torch it was compiled for, and beside no other",
    fix=(
        Fix("install a wheel made for this torch, this CUDA and this Python, where the project offers one"),
        Fix(
            "else build it here: pip install --no-build-isolation --no-binary :all: --force-reinstall PACKAGE",
            safety="slower",
        ),
    ),
    confirm='python -c "import torch, PACKAGE"',
    source="PyTorch documentation, Custom C++ and CUDA Extensions; the loader's own words, dlopen(3)",
)
def extension_abi(machine: Snapshot) -> Iterator[Evidence]:
    """A package's compiled code does not load beside this torch: a symbol or library is missing, or it crashes.

    Silent on other import errors (a module that is not installed, no driver on this machine), and on torchvision and
    torchaudio, which have rules of their own.
    """
    if machine.packages is None:
        return
    for package in machine.packages.installed:
        meaning = None if package.name in OWN_RULES else clash(machine, package)
        if meaning is None:
            continue
        yield Evidence(
            where=f"{package.name} {package.version or ''}".rstrip(),
            what="loading its compiled code",
            seen=package.import_error or death(package),
            wanted=f"no error; {meaning}",
            confidence="likely" if package.signal else "certain",
        )


def clash(machine: Snapshot, package: Package) -> str | None:
    """What a loader's error means; None where it is not about torch."""
    error = package.import_error or ""
    torch = f"torch {torch_version(machine) or ''}".rstrip()
    if (match := SYMBOL.search(error)) and not VENDOR.match(match.group(1)):
        if PYTHON.match(match.group(1)):
            return "it was compiled for another Python"
        known = TORCH.search(match.group(1)) is not None
        return f"it was compiled for another torch than {torch}" if known else "it was compiled for another library"
    if match := NO_LIBRARY.search(error):
        return f"{torch} has no {match.group(1)}: it was compiled for another build of torch"
    cuda = machine.torch.cuda.split(".")[0] if machine.torch is not None and machine.torch.cuda else None
    if cuda and (match := NO_CUDA_LIBRARY.search(error)) and match.group(1) != cuda:
        return f"it was compiled for CUDA {match.group(1)}, torch for {cuda}"
    if OTHER_BUILD.search(error):
        return f"it was built for another torch or CUDA than {torch}"
    if NO_CODE.match(error):
        return "it was installed without its compiled code"
    return "it crashes while it is loaded" if package.signal not in {None, OUT_OF_MEMORY} else None


def death(package: Package) -> str:
    """For a trial that left no error."""
    return f"died by signal {package.signal}"


RULES: tuple[Rule[Snapshot], ...] = (extension_abi,)
