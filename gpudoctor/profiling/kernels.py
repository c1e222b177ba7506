"""What a name in a trace stands for: kernels, collectives, copies, calls."""

from __future__ import annotations

import re
from functools import lru_cache

STEP = re.compile(r"ProfilerStep#(\d+)")
LOADER = re.compile(r"enumerate\(DataLoader\)#(\w+)\.__next__")
OPTIMIZER = re.compile(r"Optimizer\.step#")
DDP_FORWARD = "DistributedDataParallel.forward"
HOST_COLLECTIVE = re.compile(r"(gloo|mpi):(\w+)")
"""Collectives that threads of the host carry out. `nccl:…` annotations only launch kernels."""
SYNC = re.compile(r"(?:cuda|hip|cu)(?:Device|Stream|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy(?:2D|3D|\b)(?!Async)")
"""Calls that block their thread until the device is done."""
LAUNCH = re.compile(r"Launch", re.IGNORECASE)
GRAPH_LAUNCH = re.compile(r"GraphLaunch")
MALLOC = re.compile(r"(?:cuda|hip)Malloc(?!Host|Async)|(?:cu|hip)MemCreate|(?:cu)MemAlloc(?!Host)")
FREE = re.compile(r"(?:cuda|hip)Free(?!Host|Async)|(?:cu|hip)MemRelease|(?:cu)MemFree(?!Host)")
PINNED = re.compile(r"(?:cuda|hip|cu)(?:Host(?:Alloc|Malloc|Register)|MallocHost|MemAllocHost|MemHostAlloc)")

_COLLECTIVE = re.compile(
    r"nccl|rccl|msccl|multimem_(?:all|reduce)|cross_device_reduce|(?:one|two)_?shot_all_?reduce|nvshmem", re.IGNORECASE
)
_OPERATIONS: tuple[str, ...] = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "broadcast",
    "sendrecv",
    "reduce",
    "gather",
)
_OPERATIONS += ("scatter", "send", "recv", "barrier")


def is_collective(kernel: str) -> bool:
    """NCCL's and RCCL's kernels under their old and new names, and those that do without NCCL."""
    return _COLLECTIVE.search(kernel) is not None


@lru_cache(maxsize=4096)
def operation(name: str) -> str:
    """`ncclDevKernel_AllReduce_Sum_f32_RING_LL`, `all_reduce`, `_allreduce_base` → `allreduce`; else `other`."""
    plain = name.lower().replace("_", "").replace("crossdevicereduce", "allreduce")
    return next((known for known in _OPERATIONS if known in plain), "other")


_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"flash|fmha|sdpa|AttentionKernel|attn_fwd|attn_bwd", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor_apply|FusedAdam|FusedSgd|adam_|lamb_", re.IGNORECASE)),
    ("layout", re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|TensorTransform", re.IGNORECASE)),
    ("gemm", re.compile(r"gemm|nvjet|gemv|xmma|wgmma|Cijk_|cutlass|implicit_con|wgrad|dgrad|fprop", re.IGNORECASE)),
    ("softmax", re.compile(r"softmax", re.IGNORECASE)),
    (
        "normalisation",
        re.compile(r"layer_?norm|batch_?norm|group_?norm|rms_?norm|GammaBeta|bn_fw|bn_bw", re.IGNORECASE),
    ),
    ("elementwise", re.compile(r"elementwise|triton_poi", re.IGNORECASE)),
)


@lru_cache(maxsize=4096)
def kind(kernel: str) -> str:
    """Family of a kernel, as `KernelGroup.kind` names it."""
    return next((family for family, pattern in _KINDS if pattern.search(kernel)), "other")


_PLAIN_UNITS = re.compile(r"simt|ffma|(?<![a-z0-9])[sdcz]gemm|gemv|gemmk1|gemmSN|gemm_?v2", re.IGNORECASE)
_TENSOR_CORES = re.compile(
    r"nvjet|tensorop|[sh]16816|[sh]1688|[sh]884|i16832|hmma|imma|wgmma|gmma|tf32|umma|tcgen05|bf16_s|fp16_s",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def tensor_cores(gemm: str) -> bool | None:
    """Whether a gemm runs on tensor cores, as far as its name tells."""
    if _TENSOR_CORES.search(gemm):
        return True
    return False if _PLAIN_UNITS.search(gemm) else None


def is_tf32(gemm: str) -> bool:
    """A gemm of float32 numbers rounded for the tensor cores."""
    return "tf32" in gemm.lower()


_ALIGNMENT = re.compile(r"align([124])(?!\d)", re.IGNORECASE)
_HALF = re.compile(r"bf16|f16|fp16|h16816|half", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_unaligned(gemm: str) -> bool:
    """A tensor-core gemm of 16-bit numbers that cannot load 16 bytes at once: a dimension is no multiple of 8.

    CUTLASS writes the elements a load takes into the name; kernels on the plain units say `align1` whatever the shape.
    """
    return tensor_cores(gemm) is True and bool(_HALF.search(gemm)) and _ALIGNMENT.search(gemm) is not None


def is_fused_optimizer(kernel: str) -> bool:
    """One kernel reads gradient, parameter and state and writes them back."""
    return "fused" in kernel.lower()


_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
_ROCM_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)")


@lru_cache(maxsize=256)
def copy_ends(name: str) -> tuple[str, str | None, str | None]:
    """Direction, source and target of a copy: `Memcpy HtoD (Pageable -> Device)` → HtoD, Pageable, Device."""
    if (found := _COPY.match(name)) is not None:
        return found.group(1), found.group(2), found.group(3)
    if (found := _ROCM_COPY.match(name)) is not None:
        return f"{found.group(1)[0]}to{found.group(2)[0]}", None, None
    return name, None, None
