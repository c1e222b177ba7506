"""Packages with code compiled against torch: where that code lies, and whether it loads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from shutil import which

import msgspec

from gpudoctor.probes.interpreter import Interpreter
from gpudoctor.probes.system import NotRead, System

SCRIPT = Path(__file__).with_name("extension_child.py")
MARK = "@gpudoctor "
DEADLINE_S = 40.0
ONE_TRIAL_S = 12


class Extension(msgspec.Struct, frozen=True):
    """What a package holds for torch."""

    files: tuple[str, ...]
    """Patterns below site-packages, in the order they need each other. `{cuda}` is torch's CUDA, such as `128`.

    WHY not every .so: some are optional, and do not load on healthy machines (torchaudio's for sox and FFmpeg).
    """
    module: str | None = None
    """Imported where no such file is there: the package cannot do without. None where an import is too dear, or is
    well without (compiled at run time)."""


EXTENSIONS: dict[str, Extension] = {
    "apex": Extension(("amp_C*.so", "apex_C*.so", "fused_layer_norm_cuda*.so"), "apex"),
    "bitsandbytes": Extension(("bitsandbytes/libbitsandbytes_cuda{cuda}.so",), "bitsandbytes"),
    "causal-conv1d": Extension(("causal_conv1d_cuda*.so",), "causal_conv1d"),
    "deepspeed": Extension(("deepspeed/ops/*/*_op*.so",)),
    "detectron2": Extension(("detectron2/_C*.so",)),
    "flash-attn": Extension(("flash_attn_2_cuda*.so",), "flash_attn"),
    "flash-attn-3": Extension(("flash_attn_3/_C*.so",)),
    "flashinfer-python": Extension(("flashinfer/*kernels*.so",)),
    "mamba-ssm": Extension(("selective_scan_cuda*.so",), "mamba_ssm"),
    "mmcv": Extension(("mmcv/_ext*.so",)),
    "pyg-lib": Extension(("pyg_lib/libpyg*.so", "libpyg*.so")),
    "pytorch3d": Extension(("pytorch3d/_C*.so",)),
    "torch-cluster": Extension(("torch_cluster/_*.so",)),
    "torch-scatter": Extension(("torch_scatter/_*.so",), "torch_scatter"),
    "torch-sparse": Extension(("torch_sparse/_*.so",)),
    "torch-spline-conv": Extension(("torch_spline_conv/_*.so",)),
    "torchaudio": Extension(("torchaudio/lib/libtorchaudio.*so",)),
    "torchtext": Extension(("torchtext/lib/libtorchtext.so",)),
    "torchvision": Extension(("torchvision/_C*.so",), "torchvision"),
    "transformer-engine": Extension(
        (
            "transformer_engine/libtransformer_engine.so",
            "transformer_engine/wheel_lib/libtransformer_engine.so",
            "transformer_engine_torch*.so",
            "transformer_engine/transformer_engine_torch*.so",
            "transformer_engine/wheel_lib/transformer_engine_torch*.so",
        )
    ),
    "vllm": Extension(("vllm/_C*.so", "vllm/_moe_C*.so")),
    "xformers": Extension(("xformers/_C*.so",), "xformers"),
}


class Ending(msgspec.Struct, frozen=True):
    """Of one trial. Both None: it loads."""

    error: str | None = None
    signal: int | None = None


def compiled(extension: Extension, folder: Path, interpreter: Interpreter, cuda: str | None) -> list[str]:
    """Files of a package below its site-packages that this interpreter would load."""
    other = [f".cpython-3{minor}" for minor in range(30) if f"3{minor}" != interpreter.tag[2:]]
    patterns = (pattern.replace("{cuda}", (cuda or "").replace(".", "")) for pattern in extension.files)
    found = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
    return [str(path) for path in found if not any(f"{tag}-" in path.name for tag in other)]


def load(
    system: System, interpreter: Interpreter, torch: Path, files: dict[str, list[str]], modules: dict[str, str]
) -> dict[str, Ending]:
    """Package → how loading its files, or importing its module, ended.

    Raises NotRead where torch itself does not load, which is then the finding.
    """
    executable = which(interpreter.executable, path=system.environ.get("PATH", os.defpath))
    if executable is None:
        raise NotRead(f"{interpreter.executable} not found")
    asked = json.dumps({"torch": str(torch), "files": files, "modules": modules, "seconds": ONE_TRIAL_S})
    script = SCRIPT.read_text(encoding="utf-8")
    output = system.run([executable, "-c", script, asked], timeout_s=DEADLINE_S)
    line = next((line for line in reversed(output.splitlines()) if line.startswith(MARK)), None)
    if line is None:
        raise NotRead("the trial gave no answer")
    return {name: Ending(**told) for name, told in json.loads(line[len(MARK) :]).items()}
