"""Options of torch's CUDA allocator, and which values it takes for those whose refusal is known.

Source: headers c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of torch 2.13, read 2026-12-01, each value
tried there; names that later releases dropped are from c10/cuda/CUDACachingAllocator.cpp of torch 1.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SIZES = ("max_split_size_mb", "max_non_split_rounding_mb")
SWITCHES = ("expandable_segments", "pinned_use_background_threads", "pinned_use_cuda_host_register")
OPTIONS = (
    *SIZES,
    *SWITCHES,
    *(
        "large_segment_size_mb",
        "backend",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
        "roundup_bypass_threshold_mb",
    ),
    *("release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_hip_host_register"),
    *("pinned_num_register_threads", "pinned_reserve_segment_size_mb", "pinned_max_cached_size_mb"),
    *("pinned_max_round_threshold_mb", "pinned_free_catch_all", "graph_capture_record_stream_reuse"),
    *("per_process_memory_fraction", "throw_on_cudamalloc_oom"),
)


def _is_switch(value: str) -> bool:
    return value in {"True", "False"}


def _is_size(value: str) -> bool:
    # `128MB` is 128 to C++.
    digits = re.match(r"\d+", value)
    return digits is not None and int(digits[0]) >= 20


def _is_share(value: str) -> bool:
    try:
        return 0 < float(value) < 1
    except ValueError:
        return False


def _is_backend(value: str) -> bool:
    return value in {"native", "cudaMallocAsync"}


VALUES: dict[str, tuple[Callable[[str], bool], str]] = {
    **dict.fromkeys(SIZES, (_is_size, "a whole number of MiB, 20 or more")),
    **dict.fromkeys(SWITCHES, (_is_switch, "True or False, capitalised")),
    "garbage_collection_threshold": (_is_share, "more than 0.0 and less than 1.0"),
    "backend": (_is_backend, "native or cudaMallocAsync"),
}
"""Option → a test of its value, and in words what passes it."""
