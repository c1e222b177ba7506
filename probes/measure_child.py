"""Run in the interpreter under examination: make the hardware work, one stage at a time as the probe asks for it.

Each line on standard input is a stage with its arguments, each line told is JSON behind a mark. Standard library and
torch only, Python 3.9 and newer. Run by its path, since workers that are spawned import this file again.
"""

from __future__ import annotations

import faulthandler
import os
import sys

# WHY first of all: neighbours of this file bear the names of packages (torch.py), and its folder leads sys.path.
if sys.path and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):  # noqa: PTH120
    del sys.path[0]

import functools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

MARK = "@gpudoctor "
REPEATS = 10
WARM_UP = 2
LONGEST_S = 1.5
"""Repeats end after this time: a slow CPU needs no ten."""
GIB, MIB = 2**30, 2**20
# Measured on an H200 and on CPUs at side 2048 with random normal matrices (largest difference over largest element),
# times ten: what a sound board never reaches and a wrong element easily does.
BOUNDS = {"fp32": 1.6e-5, "tf32": 2.9e-3, "bf16": 1.7e-2, "fp16": 2.1e-3}
SKIPPED = {
    "No available kernel": "not available on this device",
    "Invalid backend": "not available on this device",
    "InvalidCxxCompiler": "no C++ compiler",
    "No working C++ compiler": "no C++ compiler",
    "Failed to find C compiler": "no C compiler",
    "is not supported on Python": "torch.compile does not support this Python",
    "too old to be supported by the triton": "triton does not support this board",
}
"""Words of an error that say a feature is not there, which is no fault of the machine."""
BATCH_BYTES = 32 * MIB
BATCHES = 8

channel = sys.stdout


def tell(**facts: Any) -> None:
    """One line, at once."""
    channel.write("\n" + MARK + json.dumps(facts) + "\n")
    channel.flush()


def described(error: BaseException) -> str:
    """Its kind and its words in one line; of many the first and the last, where the cause stands."""
    text = str(error).strip()
    if "Original Traceback" in text:  # of a loader worker: its last line is the error itself
        return "in a worker: " + text.splitlines()[-1].strip()[:600]
    words = type(error).__name__ + ": " + " ".join(text.split())
    return words if len(words) <= 600 else words[:200] + " … " + words[-400:]


@functools.cache
def the_torch() -> Any:
    """By its name, since gpudoctor itself may never import torch, and a linter sees to that."""
    warnings.simplefilter("ignore")
    return __import__("torch")


# Timing


def middle(values: list[float]) -> float:
    """The median."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: list[float]) -> float:
    """(largest - smallest) / median."""
    return (max(values) - min(values)) / middle(values)


def seconds(gpu: int | None, work: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Of each repeat after warm-up; on a GPU by events, so that the host's part does not count."""
    torch = the_torch()
    if gpu is None:
        work()
        return list(_by_the_clock(work, repeats))
    for _ in range(WARM_UP):
        work()
    torch.cuda.synchronize(gpu)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize(gpu)
    return [before.elapsed_time(after) / 1e3 for before, after in zip(marks, marks[1:])]  # noqa: B905, RUF007 - not in 3.9


def _by_the_clock(work: Callable[[], Any], repeats: int) -> Iterator[float]:
    began = time.perf_counter()
    for _ in range(repeats):
        yield clocked(work)
        if time.perf_counter() - began > LONGEST_S:
            return


def clocked(work: Callable[[], Any]) -> float:
    """Of one call, on the host's clock."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def place(gpu: int | None) -> Any:
    """torch's device."""
    torch = the_torch()
    if gpu is None:
        return torch.device("cpu")
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


# Stages: each returns facts by field of Measured, with torch's number in `gpu`


def devices() -> dict[str, Any]:
    """What can be measured."""
    torch = the_torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
    return {
        "uuids": [str(getattr(item, "uuid", "") or "") for item in found],
        "names": [str(item.name) for item in found],
        "rocm": getattr(torch.version, "hip", None) is not None,
        "nccl": bool(torch.distributed.is_available() and torch.distributed.is_nccl_available()),
        "gloo": bool(torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    }


def formats(gpu: int | None) -> dict[str, Any]:
    """Format → torch's type, as far as this device computes it itself."""
    torch = the_torch()
    if gpu is None:
        return {"fp32": torch.float32, "bf16": torch.bfloat16}
    known = {"fp32": torch.float32, "fp16": torch.float16}
    if getattr(torch.version, "hip", None) is not None:
        return {**known, "bf16": torch.bfloat16}
    if torch.cuda.get_device_capability(gpu) >= (8, 0):
        return {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return known


def gemm(gpu: int | None) -> dict[str, Any]:
    """Rate at a large size, correctness at a smaller one, and the same bits twice."""
    torch = the_torch()
    device = place(gpu)
    whole = 1024 if gpu is None else 8192 if torch.cuda.mem_get_info(gpu)[0] > 4 * GIB else 4096
    left, right = (torch.randn(whole, whole, device=device) for _ in range(2))
    rows = []
    for name, kind in formats(gpu).items():
        # The switch every torch has had since 1.12; the variables that overrule it were taken out of the environment.
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        # A CPU without bf16 takes seconds for what it does in milliseconds in float32.
        size = 512 if gpu is None and name == "bf16" else whole
        a, b = left[:size, :size].to(kind), right[:size, :size].to(kind)
        taken = seconds(gpu, functools.partial(torch.matmul, a, b))
        row = {
            "gpu": gpu,
            "format": name,
            "size": size,
            "tflops": 2 * size**3 / middle(taken) / 1e12,
            "spread": spread(taken),
            "bound": BOUNDS[name],
        }
        if gpu is not None and getattr(torch.version, "hip", None) is None:
            row["repeatable"] = bool(torch.equal(torch.matmul(a, b), torch.matmul(a, b)))
        error = difference(device, kind, min(size, 2048))
        finite = error == error and error != float("inf")  # the first is false for NaN alone
        row["relative_error"] = error if finite else None
        row["correct"] = finite and error <= BOUNDS[name]
        rows.append(row)
        del a, b
    if gpu is not None:
        rows += fp8(gpu, whole)
    torch.set_float32_matmul_precision("highest")
    return {"gemm": rows}


def difference(device: Any, kind: Any, size: int) -> float:
    """Of a product on the device from the one in float64, over its largest element."""
    torch = the_torch()
    left, right, wanted = reference(kind, size)
    product = torch.matmul(left.to(device), right.to(device)).cpu().double()
    return float((product - wanted).abs().max() / wanted.abs().max())


@functools.cache
def reference(kind: Any, size: int) -> tuple[Any, Any, Any]:
    """Two matrices of a type and their product, made on the CPU in float64 from the rounded numbers."""
    torch = the_torch()
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(kind) for _ in range(2))
    return left, right, left.double() @ right.double()


def fp8(gpu: int, size: int) -> list[dict[str, Any]]:
    """Rate alone; nothing where this torch or this board has none."""
    torch = the_torch()
    try:
        a = torch.randn(size, size, device=place(gpu)).to(torch.float8_e4m3fn)
        one = torch.ones((), device=a.device)
        work = functools.partial(torch._scaled_mm, a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        taken = seconds(gpu, work)
    except Exception as error:
        if "CUDA error" in str(error):
            raise
        return []
    return [
        {
            "gpu": gpu,
            "format": "fp8",
            "size": size,
            "tflops": 2 * size**3 / middle(taken) / 1e12,
            "spread": spread(taken),
        }
    ]


def memory(gpu: int | None) -> dict[str, Any]:
    """A copy large enough for no cache."""
    torch = the_torch()
    count = 256 * MIB if gpu is None else min(2 * GIB, torch.cuda.mem_get_info(gpu)[0] // 8)
    source = torch.zeros(count // 4, device=place(gpu))
    target = torch.ones_like(source)
    taken = seconds(gpu, lambda: target.copy_(source))
    return {
        "memory": [{"gpu": gpu, "gb_s": 2 * source.numel() * 4 / middle(taken) / 1e9, "spread": spread(taken)}],
    }


def host_link(gpu: int) -> dict[str, Any]:
    """Both ways, from pinned and from pageable memory."""
    torch = the_torch()
    rows = []
    for pinned, count in ((True, 512 * MIB), (False, 256 * MIB)):
        host = torch.zeros(count, dtype=torch.uint8, pin_memory=pinned)
        board = torch.zeros(count, dtype=torch.uint8, device=place(gpu))
        for to_gpu in (True, False):
            source, target = (host, board) if to_gpu else (board, host)
            copy = functools.partial(target.copy_, source, non_blocking=True)
            taken = seconds(gpu, copy, REPEATS if pinned else 4)
            rows.append(
                {
                    "gpu": gpu,
                    "to_gpu": to_gpu,
                    "pinned": pinned,
                    "gb_s": count / middle(taken) / 1e9,
                    "spread": spread(taken),
                }
            )
        del host, board
    return {"host_links": rows}


def launch(gpu: int) -> dict[str, Any]:
    """The best of some rounds of many small kernels: the host's share, so others on its CPUs must not count."""
    torch = the_torch()
    small = torch.zeros(1, device=place(gpu))
    rounds = []
    for _ in range(6):
        torch.cuda.synchronize(gpu)
        began = time.perf_counter()
        for _ in range(1000):
            small.add_(1)
        torch.cuda.synchronize(gpu)
        rounds.append((time.perf_counter() - began) / 1000 * 1e6)
    return {"launches": [{"gpu": gpu, "us": min(rounds)}]}


def features(gpu: int | None) -> dict[str, Any]:
    """Convolution, every back end of attention, a CUDA graph: forward and backward, with finite results."""
    rows = [tried("convolution", gpu, convolution)]
    rows += attention(gpu)
    if gpu is not None:
        rows.append(tried("cuda_graph", gpu, cuda_graph))
    return {"features": rows}


def tried(name: str, gpu: int | None, work: Callable[[int | None], None]) -> dict[str, Any]:
    """A Feature. An error of CUDA itself goes up: nothing after it in this process would work."""
    began = time.perf_counter()
    try:
        work(gpu)
    except Exception as error:
        if "CUDA error" in str(error):
            raise
        words = described(error)
        why = next((why for said, why in SKIPPED.items() if said in words), None)
        return {"name": name, "gpu": gpu, "ok": False, **({"skipped": why} if why else {"error": words})}
    return {"name": name, "gpu": gpu, "ok": True, "duration_s": time.perf_counter() - began}


def must_be_finite(*tensors: Any) -> None:
    """Raises ArithmeticError."""
    torch = the_torch()
    for tensor in tensors:
        if not bool(torch.isfinite(tensor).all()):
            raise ArithmeticError("the result holds NaN or infinity")


def convolution(gpu: int | None) -> None:
    """cuDNN's or MIOpen's on a GPU."""
    torch = the_torch()
    images = torch.randn(8, 16, 64, 64, device=place(gpu), requires_grad=True)
    layer = torch.nn.Conv2d(16, 32, 3, padding=1).to(images.device)
    layer(images).square().mean().backward()
    must_be_finite(images.grad, layer.weight.grad)


def attention(gpu: int | None) -> list[dict[str, Any]]:
    """Those back ends that say they cannot are skipped with their words, not failed."""
    torch = the_torch()
    try:
        from_attention = __import__("torch.nn.attention", fromlist=["SDPBackend"])
    except ImportError:
        return []
    kinds = from_attention.SDPBackend
    names = (
        ("MATH", "FLASH_ATTENTION")
        if gpu is None
        else ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    )
    rows = []
    for name in names:
        kind = getattr(kinds, name, None)
        if kind is None:
            continue

        def work(number: int | None, kind: Any = kind) -> None:
            dtype = torch.float32 if number is None else torch.float16
            query, key, value = (
                torch.randn(2, 4, 128, 64, device=place(number), dtype=dtype, requires_grad=True) for _ in range(3)
            )
            with from_attention.sdpa_kernel(kind):
                out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                out.float().square().mean().backward()
            must_be_finite(out, query.grad)

        rows.append(tried("attention " + name.lower().replace("_attention", ""), gpu, work))
    return rows


def cuda_graph(gpu: int | None) -> None:
    """Captured once, replayed, compared."""
    torch = the_torch()
    source = torch.randn(256, 256, device=place(gpu))
    torch.matmul(source, source)  # cuBLAS makes its workspace before the capture
    torch.cuda.synchronize(gpu)
    graph = torch.cuda.CUDAGraph()
    # WHY a stream of its own: torch's is made once, on the device that was the first to capture.
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(gpu)):
        result = torch.matmul(source, source)
    source.fill_(1.0)
    graph.replay()
    torch.cuda.synchronize(gpu)
    if float((result - 256.0).abs().max()) > 1.0:
        raise ArithmeticError("the replayed graph gave other numbers")


def compile(gpu: int | None) -> dict[str, Any]:  # noqa: A001 - torch's own word
    """A small model, compared with itself uncompiled."""
    return {"features": [tried("compile", gpu, compiled)]}


def compiled(gpu: int | None) -> None:
    """Raises ArithmeticError where it computes something else."""
    torch = the_torch()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).to(place(gpu))
    batch = torch.randn(32, 64, device=place(gpu))
    with torch.no_grad():
        gap = float((torch.compile(model)(batch) - model(batch)).abs().max())
    if not gap < 1e-2:
        raise ArithmeticError("the compiled model differs by " + str(gap))


class Batches:
    """A dataset whose items are whole batches. It touches every page, as real ones do.

    WHY it shares them itself: left to the queue, a batch that does not fit is dropped in a thread of the worker's, and
    the loader waits for ever.
    """

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        return the_torch().full((BATCH_BYTES // 4,), float(index)).share_memory_()


def loader(start_method: str, sharing: str, workers: int) -> dict[str, Any]:
    """Some large batches through shared memory, checked."""
    torch = the_torch()
    torch.multiprocessing.set_sharing_strategy(sharing)
    row: dict[str, Any] = {
        "start_method": start_method,
        "sharing": sharing,
        "batch_bytes": BATCH_BYTES,
        "ok": False,
    }
    try:
        batches = torch.utils.data.DataLoader(
            Batches(),
            batch_size=None,
            num_workers=workers,
            multiprocessing_context=start_method,
            worker_init_fn=functools.partial(share_as, sharing),
            timeout=40,
        )
        began = time.perf_counter()
        first = None
        for index, batch in enumerate(batches):
            first = first or time.perf_counter()
            if float(batch[0]) != index or float(batch[-1]) != index:
                raise ArithmeticError("a batch arrived with other numbers in it")
        row["worker_start_s"] = (first or began) - began
        row["batches_per_s"] = (BATCHES - 1) / max(1e-6, time.perf_counter() - (first or began))
        row["ok"] = True
    except Exception as error:
        row["error"] = described(error)
    return {"loaders": [row]}


def share_as(sharing: str, _: int) -> None:
    """In the worker."""
    the_torch().multiprocessing.set_sharing_strategy(sharing)


def peer(first: int, second: int) -> dict[str, Any]:
    """A pattern there and back, compared on the first; then the rate."""
    torch = the_torch()
    device, other = place(first), torch.device("cuda", second)
    pattern = torch.arange(16 * MIB, device=device, dtype=torch.int32) * 2654435
    landed = torch.zeros(16 * MIB, device=other, dtype=torch.int32)
    landed.copy_(pattern)
    torch.cuda.synchronize(second)
    seen = landed.cpu()
    intact = bool(torch.equal(seen, pattern.cpu())) and bool(torch.equal(landed.to(device), pattern))
    source = torch.zeros(256 * MIB, device=device, dtype=torch.uint8)
    target = torch.zeros(256 * MIB, device=other, dtype=torch.uint8)
    taken = seconds(first, lambda: target.copy_(source, non_blocking=True), 5)
    row = {
        "first": first,
        "second": second,
        "gb_s": source.numel() / middle(taken) / 1e9,
        "intact": intact,
        "access": bool(torch.cuda.can_device_access_peer(first, second)),
    }
    return {"peers": [row]}


def collective(backend: str, rank: int, ranks: int, store: str, gpu: int | None) -> dict[str, Any]:
    """All ranks at once; rank 0 tells. Sizes grow, so that what fails at 1 GiB still tells of 1 MiB."""
    torch = the_torch()
    dist = torch.distributed
    device = place(gpu)
    dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=ranks)
    sizes = (MIB, 16 * MIB) if gpu is None else (MIB, 32 * MIB, GIB)
    ops = ("all_reduce",) if gpu is None else ("all_reduce", "all_gather", "reduce_scatter")
    rows = []
    for op in ops:
        rows += [one_collective(dist, op, count, backend, rank, ranks, device) for count in sizes]
    dist.destroy_process_group()
    return {"collectives": rows if rank == 0 else []}


def one_collective(dist: Any, op: str, count: int, backend: str, rank: int, ranks: int, device: Any) -> dict[str, Any]:
    """Its bus bandwidth as nccl-tests counts it, from the slowest rank's median."""
    torch = the_torch()
    part = count // 4 // ranks
    whole = torch.full((part * ranks,), 1.0, device=device)
    own = torch.full((part,), float(rank + 1), device=device)
    calls: dict[str, tuple[Callable[[], Any], float]] = {
        "all_reduce": (lambda: dist.all_reduce(whole), 2 * (ranks - 1) / ranks),
        "all_gather": (lambda: dist.all_gather_into_tensor(whole, own), (ranks - 1) / ranks),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(own, whole), (ranks - 1) / ranks),
    }
    work, factor = calls[op]
    # The first call is the one compared: sums of later ones grow.
    work()
    if op == "all_reduce":
        right = bool((whole == float(ranks)).all())
    elif op == "all_gather":
        steps = torch.arange(1, ranks + 1, device=device, dtype=torch.float32).repeat_interleave(part)
        right = bool(torch.equal(whole, steps))
    else:
        right = bool((own == float(ranks)).all())
    whole.fill_(0.0)
    taken = middle(seconds(device.index, work) if device.type == "cuda" else [clocked(work) for _ in range(5)])
    slowest = torch.tensor([taken, 0.0 if right else 1.0], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    longest, wrong = slowest.tolist()
    return {
        "op": op,
        "bytes": part * ranks * 4,
        "bus_gb_s": part * ranks * 4 * factor / longest / 1e9,
        "backend": backend,
        "ranks": ranks,
        "correct": wrong == 0.0,
    }


STAGES: dict[str, Callable[..., dict[str, Any]]] = {
    stage.__name__: stage
    for stage in (devices, gemm, memory, host_link, launch, features, compile, loader, peer, collective)
}


def main() -> None:
    """Stages until standard input ends. An error of CUDA ends the process, which could not go on."""
    global channel
    # Whatever torch or the user's own start-up files print must not mix with what is told.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.set_inheritable(channel.fileno(), False)
    faulthandler.enable()
    for line in sys.stdin:
        asked = json.loads(line)
        tell(stage=asked["stage"])
        faulthandler.dump_traceback_later(asked["deadline_s"] - 0.5, exit=False)
        try:
            torch = the_torch()
            with torch.set_grad_enabled(asked["stage"] == "features"):
                facts = STAGES[asked["stage"]](*asked["arguments"])
            tell(done=asked["stage"], facts=facts)
        except Exception as error:
            last = "CUDA" in str(error) or "NCCL" in str(error)
            tell(done=asked["stage"], facts={}, error=described(error), last=last)
            if last:
                break
        finally:
            faulthandler.cancel_dump_traceback_later()
        empty_cache()
    sys.stderr.flush()
    # The usual end of a process would take torch and CUDA down in order, which only costs time.
    os._exit(0)


def empty_cache() -> None:
    """What one stage held, the next may need."""
    torch = the_torch()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
