"""Rules on what an import of torch and a start of CUDA showed."""

import msgspec
import pytest

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.torch import SmokeTest, TorchBuild, TorchRuntime
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.torch_runtime import arch_not_built, cuda_unavailable, extension_arch, torch_import_fails
from gpudoctor.snapshot import Snapshot

CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def _said(asked: Rule[Snapshot], **facts: object) -> list[Evidence]:
    return list(asked.judge(msgspec.structs.replace(Snapshot(), **facts)))


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
            "a library is missing: libcudnn.so.9",
        ),
        (
            "ImportError: /v/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
            "/v/libcusparse.so.12 wants the symbol __nvJitLinkComplete_12_4, which the library loaded before it lacks",
        ),
        (
            "ImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by /v/libtorch_cpu.so)",
            "/v/libtorch_cpu.so needs GLIBC_2.28, newer than this system's",
        ),
        ("ImportError: /v/libtorch_cuda.so: file too short", "/v/libtorch_cuda.so is damaged or half written"),
        (
            "ModuleNotFoundError: No module named 'typing_extensions'",
            "a package it needs is missing: typing_extensions",
        ),
    ],
)
def test_torch_import_fails_tells_the_cause(error: str, cause: str) -> None:
    first, second = _said(torch_import_fails, torch_runtime=TorchRuntime(stage="import", error=error))
    assert first.seen == error
    assert second.seen == cause


def test_torch_import_fails_names_a_signal_and_what_it_means() -> None:
    (found,) = _said(torch_import_fails, torch_runtime=TorchRuntime(stage="import", signal=4))
    assert found.seen == "died by SIGILL: the CPU lacks an instruction (AVX) that this build uses"


def test_torch_import_fails_names_the_place_of_a_hang() -> None:
    stacks = 'Timeout (0:00:39)!\nThread 0x1 (most recent call first):\n  File "/v/nfs.py", line 7 in wait\n'
    runtime = TorchRuntime(stage="import", timed_out=True, busy=False, traceback=stacks)
    (found,) = _said(torch_import_fails, torch_runtime=runtime)
    assert found.seen == "hangs in wait (/v/nfs.py:7)"
    assert found.severity is None


def test_torch_import_fails_only_warns_of_a_cold_disk() -> None:
    runtime = TorchRuntime(stage="import", timed_out=True, busy=True)
    (found,) = _said(torch_import_fails, torch_runtime=runtime)
    assert found.severity is Severity.WARNING


def test_torch_import_fails_names_the_file_that_took_the_name() -> None:
    runtime = TorchRuntime(stage="versions", error="AttributeError: module 'torch' has no attribute '__version__'")
    build = TorchBuild(installed=True, path="/v/torch", shadowed_by="/home/me/torch.py")
    assert [item.seen for item in _said(torch_import_fails, torch_runtime=runtime, torch=build)][
        -1
    ] == "/home/me/torch.py"


@pytest.mark.parametrize(
    "runtime",
    [
        TorchRuntime(stage="import", error="ModuleNotFoundError: No module named 'torch'"),
        TorchRuntime(stage="import"),
        TorchRuntime(stage="cuda", version="2.9.1", signal=11),
        TorchRuntime(error="RuntimeError: from a pasted text"),
        TorchRuntime(),
    ],
    ids=["absent", "no answer", "later", "pasted", "empty"],
)
def test_torch_import_fails_is_quiet(runtime: TorchRuntime) -> None:
    assert _said(torch_import_fails, torch_runtime=runtime) == []


@pytest.mark.parametrize(
    ("arch_list", "capability"),
    [
        (CU128, "6.0"),
        (("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"), "12.0"),
        (("sm_80", "sm_90a"), "10.0"),
        (("sm_86",), "8.0"),
        (("sm_80", "sm_86", "sm_90"), "8.7"),
    ],
)
def test_arch_not_built_speaks(arch_list: tuple[str, ...], capability: str) -> None:
    runtime = TorchRuntime(arch_list=arch_list, capabilities=(capability,))
    (found,) = _said(arch_not_built, torch_runtime=runtime)
    assert (found.where, found.confidence) == ("GPU 0", "certain")


@pytest.mark.parametrize(
    ("arch_list", "capability"),
    [
        (CU128, "8.9"),
        (CU128, "7.0"),
        (CU128, "12.1"),
        (("sm_90a",), "9.0"),
        (("sm_80", "compute_80"), "12.0"),
        (("sm_100f",), "10.3"),
        (("sm_80", "sm_110"), "11.0"),
        ((), "6.0"),
    ],
)
def test_arch_not_built_is_quiet(arch_list: tuple[str, ...], capability: str) -> None:
    assert _said(arch_not_built, torch_runtime=TorchRuntime(arch_list=arch_list, capabilities=(capability,))) == []


def test_arch_not_built_takes_the_table_where_torch_did_not_speak_and_says_likely() -> None:
    boards = tuple(Gpu(index=index, compute_capability="6.0") for index in (0, 1))
    (found,) = _said(arch_not_built, torch=TorchBuild(arch_list=CU128), gpus=Gpus(boards=boards))
    assert (found.where, found.confidence) == ("GPU 0, 1", "likely")


def test_arch_not_built_is_quiet_where_the_card_has_just_worked() -> None:
    runtime = TorchRuntime(arch_list=("sm_80",), capabilities=("9.0",), smoke=(SmokeTest(device=0, ok=True),))
    assert _said(arch_not_built, torch_runtime=runtime) == []


def test_arch_not_built_is_quiet_for_a_display_card_the_job_does_not_see() -> None:
    boards = (
        Gpu(index=0, uuid="GPU-aaaa", compute_capability="9.0"),
        Gpu(index=1, uuid="GPU-bbbb", compute_capability="5.0"),
    )
    facts = {"torch": TorchBuild(arch_list=CU128), "gpus": Gpus(boards=boards)}
    assert len(_said(arch_not_built, **facts)) == 1
    for visible in ("0", "GPU-aaaa", ""):
        environment = Environment(variables={"CUDA_VISIBLE_DEVICES": visible})
        assert _said(arch_not_built, environment=environment, **facts) == []


def test_arch_not_built_is_quiet_on_rocm() -> None:
    runtime = TorchRuntime(rocm="6.4", arch_list=("gfx942",), capabilities=("9.4",))
    assert _said(arch_not_built, torch_runtime=runtime) == []


def test_cuda_unavailable_tells_words_and_number() -> None:
    runtime = TorchRuntime(
        stage="done", cuda="12.8", cuda_available=False, cuda_error="unknown error\nmore", cuda_error_code=999
    )
    (found,) = _said(cuda_unavailable, torch_runtime=runtime)
    assert found.seen == "unknown error (error 999)"


def test_cuda_unavailable_speaks_of_a_start_that_hangs_or_dies() -> None:
    for ending in ({"timed_out": True}, {"signal": 11}, {"error": "RuntimeError: CUDA error: unspecified"}):
        runtime = msgspec.structs.replace(TorchRuntime(stage="devices", cuda="12.8", version="2.9.1"), **ending)
        assert len(_said(cuda_unavailable, torch_runtime=runtime)) == 1


def test_cuda_unavailable_names_the_one_sick_gpu() -> None:
    smoke = (SmokeTest(device=0, ok=True), SmokeTest(device=3, ok=False, error="AcceleratorError: CUDA error: ecc"))
    runtime = TorchRuntime(stage="done", cuda="12.8", cuda_available=True, smoke=smoke)
    (found,) = _said(cuda_unavailable, torch_runtime=runtime)
    assert found.where == "GPU 3"


@pytest.mark.parametrize(
    "error",
    [
        "OutOfMemoryError: CUDA out of memory.",
        "AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ],
)
def test_cuda_unavailable_is_quiet_for_a_gpu_that_others_use(error: str) -> None:
    smoke = (SmokeTest(device=0, ok=False, error=error),)
    runtime = TorchRuntime(stage="done", cuda="12.8", cuda_available=True, smoke=smoke)
    assert _said(cuda_unavailable, torch_runtime=runtime) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"torch_runtime": TorchRuntime(stage="done", cuda_available=False)},
        {"torch_runtime": TorchRuntime(stage="done", rocm="6.4", cuda_available=False)},
        {
            "torch_runtime": TorchRuntime(stage="done", cuda="12.8", cuda_available=False),
            "expected": Expected(device="cpu"),
        },
        {"torch_runtime": TorchRuntime(stage="import", cuda="12.8")},
    ],
    ids=["CPU build", "ROCm", "policy", "no answer"],
)
def test_cuda_unavailable_is_quiet(facts: dict[str, object]) -> None:
    assert _said(cuda_unavailable, **facts) == []


NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def test_extension_arch_speaks_where_torchs_own_list_is_fine() -> None:
    runtime = TorchRuntime(error=NO_IMAGE, arch_list=CU128, capabilities=("8.9",))
    (found,) = _said(extension_arch, torch_runtime=runtime)
    assert found.seen == NO_IMAGE


@pytest.mark.parametrize(
    "runtime",
    [
        TorchRuntime(error=NO_IMAGE, arch_list=CU128, capabilities=("6.0",)),
        TorchRuntime(error=NO_IMAGE, capabilities=("8.9",)),
        TorchRuntime(error=NO_IMAGE, arch_list=CU128),
        TorchRuntime(arch_list=CU128, capabilities=("8.9",)),
    ],
    ids=["torch's own gap", "list unknown", "card unknown", "no such error"],
)
def test_extension_arch_is_quiet(runtime: TorchRuntime) -> None:
    assert _said(extension_arch, torch_runtime=runtime) == []
