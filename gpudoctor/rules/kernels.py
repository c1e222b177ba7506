"""Rules on kernels: slower ones than the device has for the same work."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.job import PrecisionSetup
from gpudoctor.facts.run import KernelGroup, Rank
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import Loss, lost, ms, on_gpus, per_step_ms, share_of_window
from gpudoctor.run import Run
from gpudoctor.tables import gpus

# TF32 against float32 on the plain units of data-centre boards, where the model is not in the table: H100 495 to 67.
DATA_CENTRE, TF32_GAIN = ("8.0", "9.0", "10.0"), 7.0
WORTH_TF32 = 2.0  # boards for graphics have hardly more of one than of the other
HALF_GAIN = 2.0  # bfloat16 against TF32, and half the bytes for all other kernels
PLAIN_SHARE = 0.10
FP32_SHARE = 0.20
MOSTLY = 0.80
UNFUSED_KERNELS = 100
UNFUSED_SHARE, UNFUSED_WORTH = 0.05, 0.01
FOREACH_SHARE = 0.10
FUSED_GAIN = 2 / 3  # one pass over gradient, parameter and state instead of three and more
SOFTMAXES, SOFTMAX_SHARE = 4, 0.03
UNALIGNED_SHARE = 0.05
ALIGNED_GAIN = 10.0  # recorded trace unaligned-vocab: the head's products took 41.8 ms, aligned 4.2
LAYOUT_SHARE = 0.03
TUNING_GUIDE = "PyTorch performance tuning guide"


def _precision(rank: Rank) -> PrecisionSetup | None:
    return rank.job.precision if rank.job else None


def _capability(rank: Rank) -> tuple[int, ...]:
    parts = (rank.compute_capability or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


@rule(
    "KRN001",
    "fp32-without-tensor-cores",
    Severity.WARNING,
    why="float32 products run on the plain units, which are many times slower than the tensor cores beside them",
    fix=Fix(
        "let float32 products use the tensor cores in TF32 (10 bits of mantissa instead of 23)",
        'torch.set_float32_matmul_precision("high")',
    ),
    confirm="print(torch.get_float32_matmul_precision()); kernels named simt, ffma or sgemm in the trace",
    source="PyTorch documentation, CUDA semantics, TensorFloat-32; NVIDIA data sheets; 10 % of the step is our bound",
)
def fp32_without_tensor_cores(run: Run) -> Iterator[Evidence]:
    """Matrix products of float32 on the plain units take at least 10 % of the step, on a GPU that has TF32.

    An info on boards whose TF32 is no faster (graphics cards). Silent below compute capability 8.0, for float64, and
    where TF32 is already allowed.
    """

    def share(rank: Rank) -> float | None:
        precision, capability = _precision(rank), _capability(rank)
        if rank.kernels is None or capability < (8, 0):
            return 0.0
        if precision and (precision.matmul_precision in ("high", "medium") or precision.parameters == "float64"):
            return 0.0
        return _of_step(rank, sum(g.duration_ns for g in _plain(rank)) or rank.kernels.plain_gemm_ns)

    loss = lost(on_gpus(run), share, PLAIN_SHARE)
    if loss is None:
        return
    rank = loss.ranks[0]
    gain = _tf32_gain(rank)
    setting = _precision(rank)
    told = f"; matmul precision {setting.matmul_precision}" if setting and setting.matmul_precision else ""
    yield Evidence(
        where=loss.where,
        what="float32 products without tensor cores",
        seen=loss.seen + told,
        wanted="TF32, or bfloat16 under autocast",
        severity=Severity.WARNING if gain >= WORTH_TF32 else Severity.INFO,
        confidence=loss.confidence,
        cost=_cut(loss, 1 - 1 / gain).cost() if gain > 1 else None,
    )


def _tf32_gain(rank: Rank) -> float:
    """How many times the rate of the plain units its tensor cores have."""
    board = gpus.find(rank.device)
    if board is not None and board.tf32_tflops and board.fp32_tflops:
        return max(1.0, board.tf32_tflops / board.fp32_tflops)
    return TF32_GAIN if board is None and rank.compute_capability in DATA_CENTRE else 1.0


def _plain(rank: Rank) -> list[KernelGroup]:
    """Products on the plain units that are not of float64."""
    groups = rank.kernels.groups if rank.kernels else ()
    found = [group for group in groups if group.kind == "gemm" and group.tensor_cores is False]
    return [group for group in found if not any(word in group.name.lower() for word in ("dgemm", "f64", "double"))]


def _of_step(rank: Rank, duration_ns: int) -> float | None:
    """Share of the step that kernels take, no larger than all compute."""
    share = share_of_window(rank, duration_ns)
    return share if share is None or rank.shares is None else min(share, rank.shares.compute)


def _cut(loss: Loss, part: float) -> Loss:
    """Of what is lost, the part that can be won."""
    return Loss(loss.ranks, loss.share * part, loss.where)


@rule(
    "KRN002",
    "no-mixed-precision",
    Severity.WARNING,
    why="16-bit numbers halve the bytes of every kernel and double the rate of the tensor cores",
    fix=Fix(
        "compute the forward pass in bfloat16; parameters stay float32",
        'with torch.autocast("cuda", dtype=torch.bfloat16):',
    ),
    confirm="print(next(model.parameters()).dtype, torch.is_autocast_enabled())",
    source=f"{TUNING_GUIDE}, Use mixed precision and AMP; 20 % of the step is our bound",
)
def no_mixed_precision(run: Run) -> Iterator[Evidence]:
    """Matrix products take at least 20 % of the step, and nearly all of them are of float32 (TF32 or not).

    Silent below compute capability 8.0, which has no bfloat16, under autocast, for parameters of 16 bits, and where the
    kernels' names do not tell.
    """

    def share(rank: Rank) -> float | None:
        kernels, precision = rank.kernels, _precision(rank)
        if kernels is None or _capability(rank) < (8, 0) or not kernels.gemm_ns:
            return 0.0
        if precision and (precision.autocast or (precision.parameters or "float32") != "float32"):
            return 0.0
        single = kernels.plain_gemm_ns + kernels.tf32_gemm_ns
        return _of_step(rank, kernels.gemm_ns) if single >= MOSTLY * kernels.gemm_ns else 0.0

    loss = lost(on_gpus(run), share, FP32_SHARE)
    if loss is None:
        return
    compute = lost(loss.ranks, lambda rank: rank.shares.compute if rank.shares else None, 0.0) or loss
    yield Evidence(
        where=loss.where,
        what="products of float32",
        seen=loss.seen,
        wanted="bfloat16 under autocast",
        confidence="certain" if _precision(loss.ranks[0]) else "likely",
        cost=_cut(compute, 1 - 1 / HALF_GAIN).cost(),
    )


@rule(
    "KRN003",
    "unfused-optimizer",
    Severity.WARNING,
    why="the optimizer launches several small kernels for each parameter, and reads the same memory again for each",
    fix=Fix("let one kernel update many parameters", "torch.optim.AdamW(model.parameters(), lr=lr, fused=True)"),
    confirm="print(optimizer.defaults)",
    source="PyTorch documentation, torch.optim.AdamW, foreach and fused; 5 % of the step is our bound",
)
def unfused_optimizer(run: Run) -> Iterator[Evidence]:
    """The optimizer launches at least 100 kernels a step, none of them fused or over many tensors (foreach).

    An info where less than 5 % of the step could be won, and for a foreach optimizer, torch's default, that takes 10 %.
    Silent on CPU jobs and where the trace does not mark the optimizer.
    """
    loss = lost(on_gpus(run), _optimizer, UNFUSED_WORTH)
    if loss is None:
        return
    rank = loss.ranks[0]
    kernels = rank.kernels
    if kernels is None:
        return
    foreach = kernels.optimizer_foreach_count > 0
    severe = not foreach and loss.share >= UNFUSED_SHARE
    names = ", ".join(optimizer.name for optimizer in rank.job.optimizers) if rank.job else ""
    yield Evidence(
        where=names or loss.where,
        what="optimizer over many tensors (foreach)" if foreach else "optimizer, tensor by tensor",
        seen=f"{kernels.optimizer_count / (rank.steps or 1):.0f} kernels, "
        f"{ms(per_step_ms(rank, kernels.optimizer_ns))} ms a step; fused would save up to {loss.seen}",
        wanted="fused=True",
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=loss.confidence,
        cost=loss.cost(),
    )


def _optimizer(rank: Rank) -> float | None:
    """What fusing would save at most."""
    kernels = rank.kernels
    if kernels is None or kernels.optimizer_fused_count:
        return 0.0
    share = _of_step(rank, kernels.optimizer_ns) or 0.0
    many = kernels.optimizer_count >= UNFUSED_KERNELS * (rank.steps or 1)
    if kernels.optimizer_foreach_count:
        return share * FUSED_GAIN if share >= FOREACH_SHARE else 0.0
    return share * FUSED_GAIN if many else 0.0


@rule(
    "KRN004",
    "unfused-attention",
    Severity.WARNING,
    why="scores of every token with every other go to memory and back for scale, mask, softmax and dropout",
    fix=(
        Fix(
            "let one kernel do it all",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        ),
        Fix("in transformers", 'AutoModel.from_pretrained(name, attn_implementation="sdpa")'),
    ),
    confirm="softmax kernels in every layer, and none named flash, fmha or sdpa, in the trace",
    source="PyTorch documentation, scaled_dot_product_attention; FlashAttention paper (2022), section 3",
)
def unfused_attention(run: Run) -> Iterator[Evidence]:
    """At least four softmax kernels a batch take 3 % of the step, and no fused attention runs.

    The softmax of a loss does not count: there is one a batch, forth and back. Silent on CPU jobs.
    """
    loss = lost(on_gpus(run), _attention, SOFTMAX_SHARE)
    if loss is None:
        return
    rank = loss.ranks[0]
    softmaxes = _softmaxes(rank)
    yield Evidence(
        where=loss.where,
        what="softmax of attention, and the kernels of its size around it",
        seen=f"{sum(group.count for group in softmaxes) / (rank.steps or 1):.0f} softmax kernels a step; {loss.seen}",
        wanted="fused attention",
        confidence="likely",
        cost=loss.cost(),
    )


def _softmaxes(rank: Rank) -> list[KernelGroup]:
    """Those launched more often than a loss needs."""
    groups = rank.kernels.groups if rank.kernels else ()
    batches = max(1.0, rank.loader.count if rank.loader else rank.steps or 1)
    found = [group for group in groups if group.kind == "softmax" and "LogSoftMax" not in group.name]
    return [group for group in found if group.count >= SOFTMAXES * batches]


def _attention(rank: Rank) -> float | None:
    kernels = rank.kernels
    softmaxes = _softmaxes(rank)
    if kernels is None or kernels.attention_ns or not softmaxes:
        return 0.0
    own = sum(group.duration_ns for group in softmaxes)
    if (share_of_window(rank, own) or 0.0) < SOFTMAX_SHARE:
        return 0.0
    # Kernels that run as often and as long work on the same scores.
    count, length = min(group.count for group in softmaxes), min(group.median_ns for group in softmaxes)
    beside = sum(
        group.duration_ns
        for group in kernels.groups
        if group.kind == "elementwise" and group.count >= count and group.median_ns >= length / 4
    )
    return _of_step(rank, own + beside)


@rule(
    "KRN005",
    "unaligned-shapes",
    Severity.WARNING,
    why="a dimension that is no multiple of 8 keeps the tensor cores from loading 16 bytes at once",
    fix=Fix("pad the dimension (vocabulary, hidden size, classes) to a multiple of 64", "n = (n + 63) // 64 * 64"),
    confirm="kernels with align1, align2 or align4 in their names in the trace",
    source="NVIDIA Deep Learning Performance, Matrix Multiplication Background, Tensor Core requirements; 5 % of the "
    "step is our bound",
)
def unaligned_shapes(run: Run) -> Iterator[Evidence]:
    """16-bit matrix products whose dimensions are no multiple of 8 take at least 5 % of the step.

    Silent for products on the plain units, whose names say `align1` whatever the shape.
    """

    def share(rank: Rank) -> float | None:
        return _of_step(rank, rank.kernels.unaligned_gemm_ns) if rank.kernels else None

    loss = lost(on_gpus(run), share, UNALIGNED_SHARE)
    if loss is None:
        return
    rank = loss.ranks[0]
    total = rank.kernels.gemm_ns if rank.kernels else 0
    unaligned = rank.kernels.unaligned_gemm_ns if rank.kernels else 0
    yield Evidence(
        where=loss.where,
        what="products of unaligned shapes",
        seen=f"{loss.seen}; {unaligned / total:.0%} of all products" if total else loss.seen,
        wanted=f"below {UNALIGNED_SHARE:.0%}",
        confidence=loss.confidence,
        cost=_cut(loss, 1 - 1 / ALIGNED_GAIN).cost(),
    )


@rule(
    "KRN006",
    "fp16-without-scaler",
    Severity.WARNING,
    why="small gradients vanish in float16: the loss stops falling, without an error",
    fix=(
        Fix("use bfloat16, which has the range of float32", 'with torch.autocast("cuda", dtype=torch.bfloat16):'),
        Fix("or scale the loss", "scaler = torch.amp.GradScaler()"),
    ),
    confirm="grep -rn GradScaler .",
    source="PyTorch documentation, torch.amp, Gradient Scaling",
)
def fp16_without_scaler(run: Run) -> Iterator[Evidence]:
    """Training under float16 autocast without a GradScaler.

    Silent for bfloat16, without an optimizer (inference), under DeepSpeed, which scales by itself, and on CPU jobs.
    """
    for rank in on_gpus(run):
        job, precision = rank.job, _precision(rank)
        if job is None or precision is None or precision.autocast != "float16" or precision.scaler is not False:
            continue
        if job.optimizers and (job.parallel is None or job.parallel.kind != "deepspeed"):
            yield Evidence(what="autocast", seen="float16, no GradScaler", wanted="bfloat16, or a GradScaler")
            return


@rule(
    "KRN007",
    "layout-conversions",
    Severity.WARNING,
    why="convolutions on tensor cores want the channels last: each layer's tensors are turned around and back",
    fix=Fix(
        "keep them so: model and batches",
        "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
    ),
    confirm="kernels named nchwToNhwc in the trace",
    source=f"{TUNING_GUIDE}, Use channels_last memory format; 3 % of the step is our bound",
)
def layout_conversions(run: Run) -> Iterator[Evidence]:
    """Conversions between NCHW and NHWC take at least 3 % of the step."""

    def share(rank: Rank) -> float | None:
        return _of_step(rank, rank.kernels.layout_ns) if rank.kernels else None

    loss = lost(on_gpus(run), share, LAYOUT_SHARE)
    if loss is not None:
        yield Evidence(
            where=loss.where,
            what="layout conversions",
            seen=loss.seen,
            wanted=f"below {LAYOUT_SHARE:.0%}",
            confidence=loss.confidence,
            cost=loss.cost(),
        )


RULES: tuple[Rule[Run], ...] = (
    fp32_without_tensor_cores,
    no_mixed_precision,
    unfused_optimizer,
    unfused_attention,
    unaligned_shapes,
    fp16_without_scaler,
    layout_conversions,
)
