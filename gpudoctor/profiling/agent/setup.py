"""How the job is set up: optimizers, parallelism, precision, memory. Read once, at the end of the timing window."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional


def optimizers(seen: Iterable[Any], steps: Dict[int, int], training_steps: int) -> List[Dict[str, Any]]:
    """One row an optimizer that has stepped."""
    return [
        {
            "name": type(optimizer).__name__,
            "fused": optimizer.defaults.get("fused"),
            "foreach": optimizer.defaults.get("foreach"),
            "capturable": optimizer.defaults.get("capturable"),
            "parameters": sum(len(group["params"]) for group in optimizer.param_groups),
            "steps_per_step": steps[id(optimizer)] / training_steps if training_steps else None,
            "state_bytes": _state_bytes(optimizer),
        }
        for optimizer in seen
    ]


def _state_bytes(optimizer: Any) -> int:
    return sum(
        _bytes(value) for state in optimizer.state.values() if isinstance(state, dict) for value in state.values()
    )


def _bytes(value: Any) -> int:
    return value.nelement() * value.element_size() if hasattr(value, "nelement") else 0


def parameters(seen: Iterable[Any]) -> List[Any]:
    """Every parameter the optimizers hold, each once."""
    by_id = {id(p): p for optimizer in seen for group in optimizer.param_groups for p in group["params"]}
    return list(by_id.values())


def parallel(ddp: Any, data_parallel: bool, params: List[Any]) -> Optional[Dict[str, Any]]:
    """How the model is spread; None on one device. `ddp` is a DistributedDataParallel or None."""
    torch = sys.modules["torch"]
    distributed = torch.distributed
    backend = distributed.get_backend() if distributed.is_available() and distributed.is_initialized() else None
    kinds = {type(p).__name__ for p in params[:50]}
    if ddp is not None:
        return {"kind": "ddp", "backend": backend, **_ddp(ddp)}
    if "deepspeed" in sys.modules and backend:
        return {"kind": "deepspeed", "backend": backend}
    if "DTensor" in kinds:
        return {"kind": "fsdp2", "backend": backend}
    if "FlatParameter" in kinds or any(hasattr(p, "_is_flat_param") for p in params[:50]):
        return {"kind": "fsdp", "backend": backend}
    if data_parallel:
        return {"kind": "data_parallel", "backend": backend}
    return {"backend": backend} if backend else None


def _ddp(model: Any) -> Dict[str, Any]:
    told = model._get_ddp_logging_data()
    sizes = str(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or "")
    return {
        "bucket_cap_bytes": told.get("bucket_cap_bytes"),
        "bucket_sizes_bytes": [int(size) for size in sizes.split(",") if size.strip().isdigit()],
        "find_unused_parameters": bool(told.get("find_unused_parameters")),
        "unused_parameters": told.get("unused_parameter_size"),
        "static_graph": bool(told.get("static_graph")),
        "gradient_as_bucket_view": bool(told.get("gradient_as_bucket_view")),
    }


def precision(params: List[Any], autocast: Optional[str], scaler: bool) -> Dict[str, Any]:
    """Number formats. Every switch is read on its own: torch raises where old and new ones were mixed."""
    torch = sys.modules["torch"]
    kinds = Counter({str(p.dtype).replace("torch.", ""): 0 for p in params})
    for p in params:
        kinds[str(p.dtype).replace("torch.", "")] += p.nelement()
    told: Dict[str, Any] = {
        "parameters": kinds.most_common(1)[0][0] if kinds else None,
        "autocast": autocast,
        "scaler": scaler,
    }
    for name, read in (
        ("matmul_precision", torch.get_float32_matmul_precision),
        ("cudnn_benchmark", lambda: torch.backends.cudnn.benchmark),
        ("cudnn_allow_tf32", lambda: torch.backends.cudnn.allow_tf32),
    ):
        try:
            told[name] = read()
        except RuntimeError:
            told[name] = None
    return told


def memory(params: List[Any], gradients_bytes: Optional[int], seen: Iterable[Any]) -> Dict[str, Any]:
    """Of the model's state, and of the current device as the allocator counts it."""
    torch = sys.modules["torch"]
    told: Dict[str, Any] = {
        "parameters_bytes": sum(_bytes(p) for p in params),
        "gradients_bytes": gradients_bytes,
        "optimizer_bytes": sum(_state_bytes(optimizer) for optimizer in seen),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats()
        told.update(
            allocated_peak_bytes=torch.cuda.max_memory_allocated(),
            reserved_peak_bytes=torch.cuda.max_memory_reserved(),
            total_bytes=torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
            retries=stats.get("num_alloc_retries"),
            ooms=stats.get("num_ooms"),
        )
    return told


def graphs_compiled() -> Optional[int]:
    """Graphs torch.compile has made so far; None where it was never used."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return None
    return int(dynamo.counters["stats"].get("unique_graphs", 0)) or None
