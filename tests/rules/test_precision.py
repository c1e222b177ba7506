"""Rules on number formats."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.precision import Precision
from gpudoctor.facts.torch import SmokeTest, TorchRuntime
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.precision import (
    bf16_emulated,
    no_tensor_cores,
    tf32_forced,
    tf32_off,
    tf32_unsupported,
    wrong_product,
)
from gpudoctor.snapshot import Snapshot

A100 = TorchRuntime(capabilities=("8.0", "8.0"))
V100 = TorchRuntime(capabilities=("7.0",), device_names=("Tesla V100-SXM2-16GB",))


def _said(asked: Rule[Snapshot], **facts: object) -> list[Evidence]:
    return list(asked.judge(msgspec.structs.replace(Snapshot(), **facts)))


def _set(name: str, value: str) -> Environment:
    return Environment(variables={name: value})


def _with(runtime: TorchRuntime, **settings: str) -> TorchRuntime:
    return msgspec.structs.replace(runtime, precision=msgspec.structs.replace(Precision(), **settings))


def test_tf32_off_speaks_once_for_all_cards() -> None:
    (found,) = _said(tf32_off, torch_runtime=_with(A100, float32_matmul="highest"))
    assert found.where == "GPU 0, 1"


def test_tf32_off_is_quiet_on_cards_without_it_and_without_cards() -> None:
    assert _said(tf32_off, torch_runtime=_with(V100, float32_matmul="highest")) == []
    assert _said(tf32_off, torch_runtime=_with(TorchRuntime(capabilities=()), float32_matmul="highest")) == []


def test_tf32_off_is_quiet_where_either_switch_is_on_or_unreadable() -> None:
    assert _said(tf32_off, torch_runtime=_with(A100, float32_matmul="high")) == []
    assert _said(tf32_off, torch_runtime=_with(A100, float32_matmul="highest", matmul_fp32_precision="tf32")) == []
    assert _said(tf32_off, torch_runtime=_with(A100)) == []


def test_tf32_off_is_quiet_where_the_policy_wants_fp32() -> None:
    runtime = _with(A100, float32_matmul="highest")
    assert _said(tf32_off, torch_runtime=runtime, expected=Expected(precision="fp32")) == []


def test_bf16_emulated_speaks_where_the_policy_or_the_job_wants_it() -> None:
    (found,) = _said(bf16_emulated, torch_runtime=V100, expected=Expected(precision="bf16"))
    assert (found.where, found.seen) == ("GPU 0", "7.0")
    assert len(_said(bf16_emulated, torch_runtime=_with(V100, wanted="bf16"))) == 1


def test_bf16_emulated_is_quiet_where_nobody_asks_and_where_the_card_can() -> None:
    assert _said(bf16_emulated, torch_runtime=V100) == []
    assert _said(bf16_emulated, torch_runtime=A100, expected=Expected(precision="bf16")) == []
    assert _said(bf16_emulated, expected=Expected(precision="bf16")) == []


def test_no_tensor_cores_knows_the_gtx_16() -> None:
    boards = (
        Gpu(index=0, name="Tesla P100-PCIE-16GB", compute_capability="6.0"),
        Gpu(index=1, name="NVIDIA GeForce GTX 1650", compute_capability="7.5"),
        Gpu(index=2, name="Tesla T4", compute_capability="7.5"),
    )
    assert [found.where for found in _said(no_tensor_cores, gpus=Gpus(boards=boards))] == ["GPU 0", "GPU 1"]


def test_no_tensor_cores_is_quiet_on_a_v100_and_where_nothing_is_known() -> None:
    assert _said(no_tensor_cores, torch_runtime=V100) == []
    assert _said(no_tensor_cores, gpus=Gpus(boards=(Gpu(index=0, name="NVIDIA Something"),))) == []


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("NVIDIA_TF32_OVERRIDE", "1", "1: TF32 is on"),
        ("NVIDIA_TF32_OVERRIDE", "0", "0: TF32 is off"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", "1: TF32 is on"),
    ],
)
def test_tf32_forced_names_the_variable(name: str, value: str, seen: str) -> None:
    (found,) = _said(tf32_forced, torch_runtime=A100, environment=_set(name, value))
    assert (found.where, found.seen, found.severity) == (name, seen, None)


def test_tf32_forced_is_quiet_for_a_value_that_forces_nothing() -> None:
    assert _said(tf32_forced, torch_runtime=A100, environment=_set("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "0")) == []
    assert _said(tf32_forced, torch_runtime=A100, environment=Environment()) == []


def test_tf32_forced_is_told_where_the_cards_are_not_known() -> None:
    assert len(_said(tf32_forced, environment=_set("NVIDIA_TF32_OVERRIDE", "1"))) == 1


def test_tf32_forced_is_quiet_without_a_card_that_knows_tf32() -> None:
    assert _said(tf32_forced, torch_runtime=V100, environment=_set("NVIDIA_TF32_OVERRIDE", "1")) == []


def test_tf32_forced_is_quiet_where_the_policy_wants_just_that() -> None:
    facts = {"torch_runtime": A100, "environment": _set("NVIDIA_TF32_OVERRIDE", "1")}
    assert _said(tf32_forced, expected=Expected(precision="tf32"), **facts) == []


def test_tf32_forced_is_only_info_where_nvidias_image_set_it() -> None:
    environment = _set("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    image = Container(kind="docker", image_nvidia=True)
    (found,) = _said(tf32_forced, torch_runtime=A100, environment=environment, container=image)
    assert found.severity is Severity.INFO


def test_tf32_unsupported_speaks_where_job_policy_or_variable_ask_a_v100() -> None:
    for facts in (
        {"torch_runtime": _with(V100, wanted="tf32")},
        {"torch_runtime": V100, "expected": Expected(precision="tf32")},
        {"torch_runtime": V100, "environment": _set("NVIDIA_TF32_OVERRIDE", "1")},
    ):
        (found,) = _said(tf32_unsupported, **facts)
        assert (found.seen, found.severity) == ("7.0", None)


def test_tf32_unsupported_is_quiet_where_nobody_asks_where_the_card_can_and_where_it_is_unknown() -> None:
    assert _said(tf32_unsupported, torch_runtime=V100) == []
    assert _said(tf32_unsupported, torch_runtime=V100, environment=_set("NVIDIA_TF32_OVERRIDE", "0")) == []
    assert _said(tf32_unsupported, torch_runtime=_with(A100, wanted="tf32")) == []
    assert _said(tf32_unsupported, expected=Expected(precision="tf32")) == []


def test_wrong_product_names_the_gpu_and_the_error() -> None:
    smoke = (SmokeTest(device=0, ok=True, relative_error=1e-6), SmokeTest(device=1, ok=False, relative_error=0.25))
    (found,) = _said(wrong_product, torch_runtime=TorchRuntime(smoke=smoke))
    assert (found.where, found.seen) == ("GPU 1", "relative error 2.5e-01")


def test_wrong_product_is_quiet_where_the_test_could_not_run() -> None:
    smoke = (SmokeTest(device=0, ok=False, error="OutOfMemoryError: CUDA out of memory"),)
    assert _said(wrong_product, torch_runtime=TorchRuntime(smoke=smoke)) == []
    assert _said(wrong_product, torch_runtime=TorchRuntime()) == []
