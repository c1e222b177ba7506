"""Run in the interpreter under examination: import torch, start CUDA, multiply on every GPU, tell each answer at once.

Passed as text to `python -c`, so nothing of gpudoctor has to be importable there. Standard library and torch only,
Python 3.9 and newer. Each line told is JSON behind a mark; the stage is told before it begins, so that a death or a
hang leaves its place behind.
"""

from __future__ import annotations

import faulthandler
import os
import sys

if __name__ == "__main__":
    # WHY: the working folder is the user's, and comes first. Their torch.py shall be found, their json.py not by us.
    here = [sys.path.pop(0)] if sys.path[:1] == [""] else []
import json
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

MARK = "@gpudoctor "
SIDE = 256
"""Of the matrices multiplied: the start of CUDA is what costs, not the product."""
BOUND = 5e-3
"""Of the relative error: float32 stays near 1e-6, TF32 (which a variable may force) near 1e-3."""
DEVICE_SHARE = 0.3
"""Of the time spent until the first GPU has answered, what the other GPUs may take, all at once."""
CUDA_LIBRARY = re.compile(
    r"/lib((?:cuda|cudart|cudnn|nccl|cublas|cublasLt|nvJitLink|cusparse|cufft|cusolver|nvrtc)(?:_\w+)?)[-.][-.\w]*so"
)
"""`libcudnn_graph.so.9` is `cudnn_graph`: a part of cuDNN that cannot tell its version."""

unread: dict[str, str] = {}
channel = sys.stdout


def tell(**facts: Any) -> None:
    """One line, at once."""
    channel.write("\n" + MARK + json.dumps({**facts, "unread": unread}, default=str) + "\n")
    channel.flush()


def ask(name: str, question: Callable[[], Any]) -> Any:
    """The answer; None and a note where torch (old, new or broken) has none."""
    try:
        return question()
    except Exception as error:
        unread[name] = described(error)
        return None


def described(error: BaseException) -> str:
    """Its kind and the first line of its words."""
    return type(error).__name__ + ": " + str(error).strip().split("\n")[0]


def main() -> None:
    """All stages, in order."""
    started = time.perf_counter()
    tell(stage="import")
    # By its name, since gpudoctor itself may never import torch, and a linter sees to that.
    torch = __import__("torch")
    tell(import_s=time.perf_counter() - started, path=getattr(torch, "__file__", None))
    warnings.simplefilter("ignore")
    tell(stage="versions")
    settings = versions(torch)
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        tell(cuda_available=False, device_count=0, capabilities=[], device_names=[], libraries=[], mapped=[], smoke=[])
        tell(stage="done")
        return
    tell(stage="cuda")
    available, count = cuda(torch)
    if available:
        tell(stage="devices")
        devices(torch, count, settings)
    tell(stage="libraries")
    tell(libraries=libraries(torch))
    if available:
        tell(stage="smoke")
        smoke(torch, count, started)
    tell(mapped=list(mapped()), stage="done")


def versions(torch: Any) -> dict[str, Any]:
    """What needs no CUDA; returns the precision settings."""
    tell(version=str(torch.__version__), cuda=torch.version.cuda, rocm=getattr(torch.version, "hip", None))
    # torch.cuda.get_arch_list() hides the list where CUDA is not available, when it is wanted most.
    arch = getattr(getattr(torch, "_C", None), "_cuda_getArchFlags", None)
    settings = precision(torch)
    tell(
        arch_list=ask("arch_list", lambda: (arch() or "").split() if arch else []),
        cxx11_abi=ask("cxx11_abi", lambda: bool(torch.compiled_with_cxx11_abi())),
        torch_threads=ask("torch_threads", lambda: torch.get_num_threads()),
        mps_available=ask("mps_available", lambda: bool(torch.backends.mps.is_available())),
        sdpa_backends=ask("sdpa_backends", lambda: sdpa(torch)),
        precision=settings,
    )
    return settings


def precision(torch: Any) -> dict[str, Any]:
    """TF32 switches. WHY each alone: once the new one was used, torch 2.9 and newer raise where the old one is read."""
    backends: Any = getattr(torch, "backends", None)
    return {
        "matmul_fp32_precision": ask("fp32_precision", lambda: getattr(backends.cuda.matmul, "fp32_precision", None)),
        "float32_matmul": ask("float32_matmul", lambda: torch.get_float32_matmul_precision()),
        "matmul_allow_tf32": ask("matmul_allow_tf32", lambda: bool(backends.cuda.matmul.allow_tf32)),
        "cudnn_allow_tf32": ask("cudnn_allow_tf32", lambda: bool(backends.cudnn.allow_tf32)),
    }


def sdpa(torch: Any) -> list[str]:
    """Back ends that are allowed; flash only where it was built in."""
    cuda = torch.backends.cuda
    switches = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
    allowed = [name for name, word in switches.items() if getattr(cuda, word + "_sdp_enabled", bool)()]
    built = getattr(cuda, "is_flash_attention_available", lambda: True)()
    return [name for name in allowed if name != "flash" or built]


def cuda(torch: Any) -> tuple[bool, int]:
    """Whether CUDA starts, with how many devices, and else its error in words and as a number."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
        count = int(torch.cuda.device_count())
    tell(cuda_available=available, device_count=count)
    if available:
        return True, count
    text = next((str(item.message) for item in caught if "CUDA" in str(item.message)), "")
    try:
        torch.cuda.init()
    except Exception as error:
        text = text or str(error)
    code = ask("cuda_error_code", start_driver) if torch.version.cuda else None
    number = re.search(r"[Ee]rror (\d+)\b|CUDA driver version is insufficient|driver .{0,40}too old", text)
    if not code and number:
        code = int(number.group(1) or 35)
    tell(cuda_error=text.strip() or None, cuda_error_code=code)
    return False, count


def start_driver() -> int | None:
    """What cuInit says."""
    ctypes = __import__("ctypes")
    name = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    return int(ctypes.CDLL(name).cuInit(0))


def devices(torch: Any, count: int, settings: dict[str, Any]) -> None:
    """Name and capability of each visible device; no context is made for it."""
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
    tell(
        capabilities=[f"{item.major}.{item.minor}" for item in found],
        device_names=[str(item.name) for item in found],
    )
    native = ask("bf16_native", lambda: bool(torch.cuda.is_bf16_supported(including_emulation=False)))
    if native is None:  # before torch 2.4 the question had no such argument
        native = bool(found) and found[0].major >= 8
    tell(precision={**settings, "bf16_native": native})


def mapped() -> dict[str, str]:
    """CUDA libraries in this process: path → `cudnn`, `nccl`, …"""
    try:
        with open("/proc/self/maps", errors="replace") as file:  # noqa: PTH123 - pathlib would be one more import
            paths = [line.split(None, 5)[5].rstrip("\n") for line in file if ".so" in line]
    except OSError:
        return {}
    matches = ((path, CUDA_LIBRARY.search(path)) for path in dict.fromkeys(paths))
    return {path: match.group(1).lower() for path, match in matches if match}


def libraries(torch: Any) -> list[dict[str, Any]]:
    """What is mapped, each with the version it gives itself, beside the one torch was compiled with."""
    compiled = {
        "cudnn": ask("cudnn", lambda: dotted(torch._C._cudnn.getCompileVersion())),
        "nccl": ask("nccl", lambda: dotted(torch.cuda.nccl.version())),
        "cudart": ask("cudart", lambda: thousands(torch._C._cuda_getCompiledVersion())),
    }
    ask("cudnn", lambda: torch.backends.cudnn.version())  # loads it, and tells where it does not fit
    rows = {}
    for path, name in mapped().items():
        if name in VERSION and name not in rows:
            loaded = ask("libraries." + name, partial(VERSION[name], path))
            rows[name] = {"name": name, "compiled": compiled.get(name), "loaded": loaded, "path": path}
    for name, version in compiled.items():  # linked into torch itself
        if version and name not in rows:
            rows[name] = {"name": name, "compiled": version}
    return list(rows.values())


def dotted(version: Any) -> str:
    """`(2, 27, 5)`, or a number as NCCL and cuDNN make it."""
    if isinstance(version, int):
        thousand = 10000 if version >= 10000 else 1000
        version = (version // thousand, version % thousand // 100, version % 100)
    return ".".join(str(part) for part in version[:3])


def thousands(version: int) -> str:
    """`12080` is 12.8."""
    return f"{version // 1000}.{version % 1000 // 10}"


def number_from(path: str, function: str) -> int:
    """By a function that writes it through a pointer and returns 0."""
    ctypes = __import__("ctypes")
    number = ctypes.c_int(0)
    status = getattr(already_loaded(path), function)(ctypes.byref(number))
    if status != 0:
        raise RuntimeError(f"{function} returned {status}")
    return int(number.value)


def already_loaded(path: str) -> Any:
    """The library in this process; nothing new is loaded."""
    ctypes = __import__("ctypes")
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def cudnn_version(path: str) -> str:
    """cudnnGetVersion returns it."""
    function = already_loaded(path).cudnnGetVersion
    function.restype = __import__("ctypes").c_size_t
    return dotted(int(function()))


def cublas_version(path: str) -> str:
    """One part at a time."""
    ctypes = __import__("ctypes")
    parts = [ctypes.c_int(0) for _ in range(3)]
    if any(already_loaded(path).cublasGetProperty(index, ctypes.byref(part)) for index, part in enumerate(parts)):
        raise RuntimeError("cublasGetProperty failed")
    return ".".join(str(part.value) for part in parts)


def nvjitlink_version(path: str) -> str:
    """Major and minor."""
    ctypes = __import__("ctypes")
    major, minor = ctypes.c_uint(0), ctypes.c_uint(0)
    if already_loaded(path).nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
        raise RuntimeError("nvJitLinkVersion failed")
    return f"{major.value}.{minor.value}"


VERSION: dict[str, Callable[[str], str]] = {
    "cudnn": cudnn_version,
    "nccl": lambda path: dotted(number_from(path, "ncclGetVersion")),
    "cublas": cublas_version,
    "nvjitlink": nvjitlink_version,
    "cudart": lambda path: thousands(number_from(path, "cudaRuntimeGetVersion")),
    "cuda": lambda path: thousands(number_from(path, "cuDriverGetVersion")),
}


def smoke(torch: Any, count: int, started: float) -> None:
    """A product on every visible GPU.

    The first alone, then the others at once: a context costs some 0.3 s, and one sick board must show all the same.
    Those that take longer than a share of the time so far are left behind, and named.
    """
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    wanted = left.double() @ right.double()
    rows: dict[int, dict[str, Any]] = {0: multiply(torch, 0, left, right, wanted)}
    tell(smoke=[rows[0]])

    def one(index: int) -> None:
        rows[index] = multiply(torch, index, left, right, wanted)

    threads = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(1, count)]
    ends = time.perf_counter() + max(1.0, DEVICE_SHARE * (time.perf_counter() - started))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.perf_counter()))
    done = dict(rows)
    late = [str(index) for index in range(count) if index not in done]
    if late:
        unread["smoke"] = f"GPU {', '.join(late)} did not finish in the time a default check takes"
    tell(smoke=[done[index] for index in sorted(done)])


def multiply(torch: Any, index: int, left: Any, right: Any, wanted: Any) -> dict[str, Any]:
    """Allocate, copy, multiply, add, copy back, compare."""
    began = time.perf_counter()
    try:
        device = torch.device("cuda", index)
        with torch.no_grad():
            product = (left.to(device) @ right.to(device)).add(1.0).cpu().double()
        error = float((product - 1.0 - wanted).abs().max() / wanted.abs().max())
    except Exception as raised:
        return {"device": index, "ok": False, "error": described(raised)}
    # A NaN is below no bound, and neither it nor an infinity has a place in JSON.
    facts = {"device": index, "ok": error <= BOUND, "relative_error": error if error < float("inf") else None}
    return {**facts, "duration_ms": (time.perf_counter() - began) * 1000}


def run() -> None:
    """Never returns: the usual end of a process would take torch and CUDA down in order, which only costs time."""
    global channel
    # Whatever torch or the user's own start-up files print must not mix with what is told.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    if len(sys.argv) > 1:
        faulthandler.dump_traceback_later(float(sys.argv[1]), exit=False)
    tell(stage="start")
    sys.path[:0] = here
    try:
        main()
    except BaseException as error:  # SystemExit too: a package that ends the process at its import is a finding
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        tell(error=text, traceback=traceback.format_exc())
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    run()
