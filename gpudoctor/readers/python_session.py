"""Read what people ask torch by hand, such as `torch.__version__` or `torch.cuda.is_available()`, with the answer."""

from __future__ import annotations

import re

from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.readers import wheels
from gpudoctor.snapshot import Snapshot

NAME = "Python session"

_ANSWER = r"\)?[\"']?\s{0,8}(?:\n\s{0,8}|[=:]\s{0,4})['\"]?"
_VERSION = re.compile(rf"torch\.__version__{_ANSWER}(\d{{1,2}}\.\d{{1,3}}[\w.+-]{{0,60}})['\"]?[ \t]*(?:\n|$)")
_PRINTED = re.compile(
    r"\b(?:INFO +Torch|PyTorch|torch) (\d{1,2}\.\d{1,3}\.\d{1,3}\+(?:cu\d{2,3}|cpu|rocm[\d.]{1,12}))(?=\s|$)"
)
_CUDA = re.compile(rf"torch\.version\.cuda{_ANSWER}(\d{{1,2}}\.\d{{1,2}}|None)['\"]?[ \t]*(?:\n|$)")
_AVAILABLE = re.compile(rf"torch\.cuda\.is_available\(\){_ANSWER}(True|False)\b")
_NVCC = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d{1,2})")
NEEDLES = ("torch.__version__", "torch.version.cuda", "is_available()", "Torch ", "torch ", "Cuda compilation tools")


def read(text: str) -> Snapshot | None:
    """The last answer to each question."""
    if not any(needle in text for needle in NEEDLES):
        return None
    version, cuda, available = (_last(pattern, text) for pattern in (_VERSION, _CUDA, _AVAILABLE))
    version = version or _last(_PRINTED, text)
    nvcc = _last(_NVCC, text)
    if version is None and cuda is None and available is None and nvcc is None:
        return None
    tagged_cuda, rocm, build = wheels.told_by_version(version or "")
    if cuda not in {None, "None"}:
        tagged_cuda, build = cuda, "cuda"
    known = version is not None or cuda is not None
    return Snapshot(
        torch=TorchBuild(installed=True, version=version, cuda=tagged_cuda, rocm=rocm, build=build) if known else None,
        torch_runtime=TorchRuntime(
            stage="cuda" if available else "versions",
            version=version,
            cuda=tagged_cuda,
            rocm=rocm,
            cuda_available=None if available is None else available == "True",
        )
        if known or available is not None
        else None,
        libraries=Libraries(nvcc_version=nvcc) if nvcc else None,
    )


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = match[1]
    return found
