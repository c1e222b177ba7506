"""Rules on libraries in front of torch's own."""

import msgspec
import pytest

from gpudoctor.facts.libraries import Libraries, SystemLibrary, WheelLibrary
from gpudoctor.facts.torch import LoadedVersion, TorchBuild, TorchRuntime
from gpudoctor.findings import Rule, Severity, diagnose
from gpudoctor.rules.libraries import (
    RULES,
)
from gpudoctor.rules.shadows import cublas_shadowed, cudnn_shadowed, nccl_shadowed, nvjitlink_shadowed
from gpudoctor.snapshot import Snapshot

SITE = "/opt/venv/lib/python3.12/site-packages"
SYSTEM_CUDNN = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0"
CUDNN = WheelLibrary(
    package="nvidia-cudnn-cu12",
    version="9.10.2.21",
    library="cudnn",
    cuda_major=12,
    folder=SITE,
    files=("nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn_ops.so.9"),
)
CUBLAS = WheelLibrary(
    package="nvidia-cublas-cu12",
    version="12.8.4.1",
    library="cublas",
    cuda_major=12,
    folder=SITE,
    files=("nvidia/cublas/lib/libcublas.so.12",),
)


def _process(*rows: LoadedVersion, wheels: tuple[WheelLibrary, ...] = (CUDNN, CUBLAS)) -> Snapshot:
    return Snapshot(
        torch=TorchBuild(version="2.9.1+cu128", cuda="12.8", build="cuda"),
        torch_runtime=TorchRuntime(stage="done", version="2.9.1+cu128", libraries=rows),
        libraries=Libraries(wheels=wheels, damaged=()),
    )


def _severities(asked: Rule[Snapshot], machine: Snapshot) -> list[Severity]:
    return [found.severity or asked.severity for found in asked.judge(machine)]


def test_an_older_cudnn_in_the_process_is_an_error_wherever_it_lies() -> None:
    for path in (None, SYSTEM_CUDNN, f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"):
        row = LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.8.0", path=path)
        assert _severities(cudnn_shadowed, _process(row)) == [Severity.ERROR]


def test_a_wheel_of_the_wrong_version_is_cured_by_the_right_one() -> None:
    row = LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.8.0", path=f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    torch = TorchBuild(version="2.9.1+cu128", cuda="12.8", build="cuda", pins={"cudnn": "9.10.2.21"})
    machine = msgspec.structs.replace(_process(row), torch=torch)
    (found,) = cudnn_shadowed.judge(machine)
    assert found.fix[0].command == "python -m pip install --no-deps nvidia-cudnn-cu12==9.10.2.21"


def test_an_older_cudnn_in_pasted_text_needs_nothing_else() -> None:
    row = LoadedVersion(name="cudnn", compiled="8.7.0", loaded="8.2.4")
    assert _severities(cudnn_shadowed, Snapshot(torch_runtime=TorchRuntime(libraries=(row,)))) == [Severity.ERROR]


def test_a_newer_cudnn_in_front_of_the_wheel_is_a_warning() -> None:
    row = LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.14.0", path=SYSTEM_CUDNN)
    (found,) = cudnn_shadowed.judge(_process(row))
    assert (found.where, found.seen, found.severity) == (SYSTEM_CUDNN, "9.14.0", Severity.WARNING)


@pytest.mark.parametrize(
    ("row", "wheels"),
    [
        (LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.10.2", path=SYSTEM_CUDNN), (CUDNN,)),
        (LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.14.0", path=SYSTEM_CUDNN), ()),  # NVIDIA's image
        (LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.14.0", path=f"{SITE}/x/libcudnn.so.9"), (CUDNN,)),
        (
            LoadedVersion(
                name="cudnn",
                compiled="9.10.2",
                loaded="9.14.0",
                path="/cache/uv/ab/nvidia/cudnn/lib/libcudnn.so.9",
            ),
            (CUDNN,),
        ),
        (LoadedVersion(name="cudnn", compiled="9.10.2"), (CUDNN,)),
        (LoadedVersion(name="cudnn", loaded="9.10.2", path=SYSTEM_CUDNN), ()),
        (LoadedVersion(name="cudnn", compiled="9.10.2", loaded="9.14.0"), (CUDNN,)),
    ],
    ids=["same", "no-wheel", "newer-wheel", "uv-link", "not-loaded", "not-compiled", "no-path"],
)
def test_a_cudnn_that_is_no_shadow_is_no_finding(row: LoadedVersion, wheels: tuple[WheelLibrary, ...]) -> None:
    assert _severities(cudnn_shadowed, _process(row, wheels=wheels)) == []


def test_a_system_cudnn_merely_installed_is_no_finding() -> None:
    beside = SystemLibrary(library="cudnn", path=SYSTEM_CUDNN, version="9.14.0", via="ldconfig")
    machine = Snapshot(libraries=Libraries(wheels=(CUDNN,), system=(beside,), damaged=()))
    assert diagnose(machine, RULES).findings == ()


def test_nccl_of_the_wheel_a_patch_older_is_no_finding_but_from_elsewhere_it_is() -> None:
    def row(path: str) -> LoadedVersion:
        return LoadedVersion(name="nccl", compiled="2.27.5", loaded="2.27.3", path=path)

    assert _severities(nccl_shadowed, _process(row(f"{SITE}/nvidia/nccl/lib/libnccl.so.2"))) == []
    assert _severities(nccl_shadowed, _process(row("/usr/lib/libnccl.so.2.27.3"))) == [Severity.ERROR]


def test_cublas_is_compared_with_the_wheel_where_torch_does_not_tell() -> None:
    path = "/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcublas.so.12.4.5.8"
    assert _severities(cublas_shadowed, _process(LoadedVersion(name="cublas", loaded="12.4.5", path=path))) == [
        Severity.ERROR
    ]
    same = LoadedVersion(name="cublas", loaded="12.8.4", path="/usr/local/cuda/lib64/libcublas.so.12.8.4.1")
    assert _severities(cublas_shadowed, _process(same)) == []
    own = LoadedVersion(name="cublas", loaded="12.8.4", path=f"{SITE}/nvidia/cublas/lib/libcublas.so.12")
    assert _severities(cublas_shadowed, _process(own)) == []


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (
            nvjitlink_shadowed,
            "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink",
        ),
        (nccl_shadowed, "/x/libtorch_cuda.so: undefined symbol: ncclMemFree"),
        (cublas_shadowed, "/x/libcublas.so.11: symbol cublasLtHSHMatmulAlgoInit version libcublasLt.so.11 not defined"),
        (cudnn_shadowed, "/x/libtorch_cuda.so: undefined symbol: cudnnGetExecutionPlan"),
    ],
    ids=["nvjitlink", "nccl", "cublas", "cudnn"],
)
def test_a_symbol_the_import_of_torch_misses_names_the_library(asked: Rule[Snapshot], error: str) -> None:
    machine = Snapshot(torch_runtime=TorchRuntime(stage="import", error=f"ImportError: {error}"))
    assert [finding.code for finding in diagnose(machine, RULES).findings] == [asked.code]


def test_other_errors_of_the_import_name_none() -> None:
    error = "ImportError: /x/libtorch_python.so: undefined symbol: _ZN3c105ErrorC2E"
    machine = Snapshot(torch_runtime=TorchRuntime(stage="import", error=error))
    assert diagnose(machine, RULES).findings == ()
