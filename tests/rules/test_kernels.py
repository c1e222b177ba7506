"""Rules on kernels."""

from typing import Any

import pytest

from gpudoctor.facts.job import Job, OptimizerSetup, ParallelSetup, PrecisionSetup
from gpudoctor.facts.run import KernelGroup, KernelStats, LaunchStats, Rank, StepShares
from gpudoctor.findings import Severity
from gpudoctor.rules import kernels
from gpudoctor.run import Run

MS = 1_000_000


def _run(capability: str | None = "9.0", job: Job | None = None, device: str = "NVIDIA H200", **stats: Any) -> Run:
    """Two steps of 100 ms, all compute."""
    rank = Rank(
        rank=0,
        device=device,
        compute_capability=capability,
        steps=2,
        step_ms=100.0,
        shares=StepShares(compute=1.0),
        window_ns=(0, 200 * MS),
        launches=None if device == "cpu" else LaunchStats(),
        kernels=KernelStats(**stats),
        job=job,
    )
    return Run(ranks=(rank,), steps=2, step_ms=100.0, shares=rank.shares)


FLOAT32: dict[str, Any] = {"gemm_ns": 160 * MS, "plain_gemm_ns": 160 * MS}


def test_float32_on_the_plain_units_is_told_with_what_tf32_would_leave() -> None:
    (found,) = kernels.fp32_without_tensor_cores.judge(_run(**FLOAT32))
    assert found.severity is Severity.WARNING
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(20 + 80 * 67 / 495, abs=0.5)


def test_boards_whose_tf32_is_no_faster_get_an_info() -> None:
    (found,) = kernels.fp32_without_tensor_cores.judge(_run("8.9", device="NVIDIA GeForce RTX 4090", **FLOAT32))
    assert (found.severity, found.cost) == (Severity.INFO, None)


@pytest.mark.parametrize(
    "precision",
    [PrecisionSetup(matmul_precision="high"), PrecisionSetup(parameters="float64")],
    ids=["allowed already", "float64"],
)
def test_tf32_that_is_allowed_or_no_use_is_not_advised(precision: PrecisionSetup) -> None:
    assert not list(kernels.fp32_without_tensor_cores.judge(_run(job=Job(precision=precision), **FLOAT32)))


def test_boards_without_tf32_and_cpus_are_left_alone() -> None:
    assert not list(kernels.fp32_without_tensor_cores.judge(_run("7.0", **FLOAT32)))
    assert not list(kernels.fp32_without_tensor_cores.judge(_run(None, **FLOAT32)))
    assert not list(kernels.fp32_without_tensor_cores.judge(_run(device="cpu", **FLOAT32)))


def test_float32_throughout_could_be_bfloat16() -> None:
    (found,) = kernels.no_mixed_precision.judge(_run(gemm_ns=160 * MS, tf32_gemm_ns=160 * MS))
    assert found.confidence == "likely"
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(50.0)


def test_autocast_or_kernels_of_16_bits_are_mixed_precision() -> None:
    job = Job(precision=PrecisionSetup(parameters="float32", autocast="bfloat16"))
    assert not list(kernels.no_mixed_precision.judge(_run(job=job, **FLOAT32)))
    assert not list(kernels.no_mixed_precision.judge(_run(gemm_ns=160 * MS, tensor_core_gemm_ns=160 * MS)))
    assert not list(kernels.no_mixed_precision.judge(_run("7.0", **FLOAT32)))


def test_an_optimizer_that_goes_tensor_by_tensor_is_told() -> None:
    job = Job(optimizers=(OptimizerSetup(name="AdamW"),))
    (found,) = kernels.unfused_optimizer.judge(_run(job=job, optimizer_ns=30 * MS, optimizer_count=1600))
    assert (found.where, found.severity) == ("AdamW", Severity.WARNING)
    assert found.seen.startswith("800 kernels, 15 ms a step")


def test_an_unfused_optimizer_that_costs_little_is_an_info() -> None:
    (found,) = kernels.unfused_optimizer.judge(_run(optimizer_ns=6 * MS, optimizer_count=1600))
    assert found.severity is Severity.INFO


@pytest.mark.parametrize(
    "stats",
    [
        {"optimizer_ns": 30 * MS, "optimizer_count": 40, "optimizer_fused_count": 36},
        {"optimizer_ns": 6 * MS, "optimizer_count": 40, "optimizer_foreach_count": 36},
        {"optimizer_ns": 6 * MS, "optimizer_count": 40},
        {},
    ],
    ids=["fused", "foreach and cheap", "few parameters", "unmarked"],
)
def test_other_optimizers_are_left_alone(stats: dict[str, Any]) -> None:
    assert not list(kernels.unfused_optimizer.judge(_run(**stats)))


SOFTMAX = KernelGroup(name="softmax_warp_forward", kind="softmax", count=32, duration_ns=20 * MS, median_ns=600_000)
MASK = KernelGroup(name="masked_fill", kind="elementwise", count=32, duration_ns=20 * MS, median_ns=600_000)
SMALL = KernelGroup(name="bias", kind="elementwise", count=64, duration_ns=20 * MS, median_ns=10_000)


def test_a_softmax_in_every_layer_is_unfused_attention_with_its_neighbours() -> None:
    (found,) = kernels.unfused_attention.judge(_run(softmax_ns=20 * MS, groups=(SOFTMAX, MASK, SMALL)))
    assert found.cost is not None
    assert found.cost.share_of_step == pytest.approx(0.2)


def test_the_softmax_of_a_loss_or_beside_fused_attention_is_right() -> None:
    loss = KernelGroup(name="softmax", kind="softmax", count=2, duration_ns=20 * MS, median_ns=MS)
    assert not list(kernels.unfused_attention.judge(_run(softmax_ns=20 * MS, groups=(loss,))))
    assert not list(kernels.unfused_attention.judge(_run(attention_ns=MS, groups=(SOFTMAX, MASK))))
    assert not list(kernels.unfused_attention.judge(_run(device="cpu", groups=(SOFTMAX, MASK))))


def test_unaligned_products_are_told() -> None:
    (found,) = kernels.unaligned_shapes.judge(_run(gemm_ns=160 * MS, unaligned_gemm_ns=80 * MS))
    assert found.seen == "40% of the step, 40 of 100 ms; 50% of all products"
    assert found.cost is not None
    assert found.cost.step_ms_at_best == pytest.approx(64.0)
    assert not list(kernels.unaligned_shapes.judge(_run(gemm_ns=160 * MS, unaligned_gemm_ns=MS)))


def _half(autocast: str = "float16", scaler: bool | None = False, kind: str | None = None, trains: bool = True) -> Job:
    return Job(
        optimizers=(OptimizerSetup(name="AdamW"),) if trains else (),
        parallel=ParallelSetup(kind=kind),
        precision=PrecisionSetup(autocast=autocast, scaler=scaler),
    )


def test_float16_without_a_scaler_is_told() -> None:
    assert list(kernels.fp16_without_scaler.judge(_run(job=_half())))


@pytest.mark.parametrize(
    "job",
    [_half("bfloat16"), _half(scaler=True), _half(scaler=None), _half(kind="deepspeed"), _half(trains=False)],
    ids=["bfloat16", "scaled", "unknown", "deepspeed scales", "inference"],
)
def test_float16_that_is_scaled_or_not_trained_with_is_right(job: Job) -> None:
    assert not list(kernels.fp16_without_scaler.judge(_run(job=job)))


def test_layout_conversions_are_told_from_three_per_cent() -> None:
    (found,) = kernels.layout_conversions.judge(_run(layout_ns=20 * MS))
    assert found.seen == "10% of the step, 10 of 100 ms"
    assert not list(kernels.layout_conversions.judge(_run(layout_ns=2 * MS)))
