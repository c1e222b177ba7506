"""Rules on shared libraries."""

import pytest

from gpudoctor.facts.libraries import DamagedFile, Libraries, SystemLibrary, WheelLibrary
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import LoadedVersion, TorchBuild, TorchRuntime
from gpudoctor.findings import Rule, Severity, diagnose
from gpudoctor.rules.libraries import (
    RULES,
    cuda_home_missing,
    cuda_in_ld_library_path,
    damaged_wheel,
    nvcc_differs,
    two_cuda_generations,
)
from gpudoctor.snapshot import Snapshot

SITE = "/opt/venv/lib/python3.12/site-packages"
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


def _severities(asked: Rule[Snapshot], machine: Snapshot) -> list[Severity]:
    return [found.severity or asked.severity for found in asked.judge(machine)]


def _nccl(cuda: int, **fields: object) -> WheelLibrary:
    return WheelLibrary(
        package=f"nvidia-nccl-cu{cuda}",
        version={11: "2.14.3", 12: "2.27.3", 13: "2.28.9"}[cuda],
        library="nccl",
        cuda_major=cuda,
        **fields,  # type: ignore[arg-type]
    )


FILES = ("nvidia/nccl/lib/libnccl.so.2",)


def _wheels(*wheels: WheelLibrary, cuda: str | None = "12.8") -> Snapshot:
    torch = TorchBuild(version="2.9.1", cuda=cuda, build="cuda") if cuda else None
    return Snapshot(torch=torch, libraries=Libraries(wheels=wheels))


def test_wheels_of_one_file_are_an_error_where_torchs_own_was_replaced() -> None:
    machine = _wheels(_nccl(11, files=FILES), _nccl(12, files=FILES, overwritten=FILES))
    (found,) = two_cuda_generations.judge(machine)
    assert (found.where, found.severity, found.confidence) == ("nccl", None, "certain")
    assert (found.fix[0].command or "").endswith("pip install --no-deps nvidia-nccl-cu12==2.27.3")


def test_wheels_of_one_file_are_a_warning_where_torchs_own_is_in_place_or_none_is_torchs() -> None:
    left = _wheels(_nccl(11, files=FILES, overwritten=FILES), _nccl(12, files=FILES))
    assert _severities(two_cuda_generations, left) == [Severity.WARNING]
    unused = _wheels(_nccl(11, files=FILES), _nccl(12, files=FILES), cuda="13.0")
    assert _severities(two_cuda_generations, unused) == [Severity.WARNING]


def test_pasted_names_are_enough_where_the_file_is_the_same_for_every_cuda() -> None:
    (found,) = two_cuda_generations.judge(_wheels(_nccl(11), _nccl(12), cuda=None))
    assert (found.severity, found.confidence) == (None, "likely")


@pytest.mark.parametrize(
    "wheels",
    [
        (CUDNN, _nccl(13)),
        (CUBLAS, WheelLibrary(package="nvidia-cublas", version="13.1.0.3", library="cublas", cuda_major=13)),
        (
            CUBLAS,
            WheelLibrary(
                package="nvidia-cublas",
                version="13.1.0.3",
                library="cublas",
                cuda_major=13,
                folder=SITE,
                files=("nvidia/cu13/lib/libcublas.so.13",),
            ),
        ),
        (_nccl(11, files=FILES, folder="/root/.local/lib"), _nccl(12, files=FILES, folder=SITE)),
        (WheelLibrary(package="nccl", version="2.27.3", library="nccl", conda=True), _nccl(12, files=FILES)),
        (
            WheelLibrary(package="nvidia-cudnn-cu11", version="8.5.0.96", library="cudnn", cuda_major=11),
            WheelLibrary(package="nvidia-cudnn-cu12", version="9.1.0.70", library="cudnn", cuda_major=12),
        ),
    ],
    ids=["other-libraries", "cublas-by-name", "cublas-by-file", "other-folders", "conda", "other-soname"],
)
def test_wheels_that_share_no_file_are_no_finding(wheels: tuple[WheelLibrary, ...]) -> None:
    assert list(two_cuda_generations.judge(_wheels(*wheels))) == []


def _searched(*libraries: SystemLibrary, mapped: tuple[str, ...] | None = None) -> Snapshot:
    return Snapshot(
        torch_runtime=TorchRuntime(stage="done", mapped=mapped) if mapped is not None else None,
        libraries=Libraries(wheels=(CUDNN, CUBLAS), system=libraries),
    )


def _in_path(name: str, version: str | None, folder: str = "/usr/local/cuda-12.4/lib64") -> SystemLibrary:
    return SystemLibrary(library="cublas", path=f"{folder}/{name}", version=version, via="LD_LIBRARY_PATH")


def test_another_version_under_a_wheels_name_in_ld_library_path_is_a_warning() -> None:
    (found,) = cuda_in_ld_library_path.judge(
        _searched(_in_path("libcublas.so.12", "12.4.5.8"), _in_path("libcudnn.so.9", "9.1.0"))
    )
    assert (found.what, found.seen) == ("/usr/local/cuda-12.4/lib64", "libcublas.so.12 12.4.5.8 and 1 more")
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    "machine",
    [
        _searched(_in_path("libcublas.so.11", "11.10.3")),
        _searched(_in_path("libcublas.so.12", "12.8.4.1")),
        _searched(_in_path("libcufft.so.11", "11.2.1")),
        _searched(SystemLibrary(library="cudnn", path="/usr/lib/libcudnn.so.9", version="9.14.0", via="ldconfig")),
        _searched(_in_path("libcublas.so.12", "12.4.5.8"), mapped=(f"{SITE}/nvidia/cublas/lib/libcublas.so.12",)),
        Snapshot(libraries=Libraries(wheels=(), system=(_in_path("libcublas.so.12", "12.4.5.8"),))),
        Snapshot(libraries=Libraries(ld_library_path=("/usr/local/cuda/lib64",))),
    ],
    ids=["other-soname", "same-version", "no-wheel-of-it", "not-searched-first", "seen-from-wheel", "image", "unread"],
)
def test_a_search_path_that_shadows_nothing_is_no_finding(machine: Snapshot) -> None:
    assert list(cuda_in_ld_library_path.judge(machine)) == []


def test_a_search_path_folds_under_the_library_that_it_did_shadow() -> None:
    row = LoadedVersion(
        name="cublas", compiled="12.8.4", loaded="12.4.5", path="/usr/local/cuda-12.4/lib64/libcublas.so.12.4.5.8"
    )
    machine = Snapshot(
        torch_runtime=TorchRuntime(stage="done", libraries=(row,), mapped=(row.path or "",)),
        libraries=Libraries(wheels=(CUBLAS,), system=(_in_path("libcublas.so.12", "12.4.5.8"),)),
    )
    (finding,) = diagnose(machine, RULES).findings
    assert (finding.code, finding.consequences) == ("LIB003", ("LIB006",))


def _damaged(seen: str, whole: bool | None = None, runtime: TorchRuntime | None = None) -> Snapshot:
    file = DamagedFile(
        package="nvidia-cudnn-cu12", path="nvidia/cudnn/lib/libcudnn.so.9", seen=seen, wanted="4096 bytes", whole=whole
    )
    return Snapshot(torch_runtime=runtime, libraries=Libraries(wheels=(CUDNN,), damaged=(file,)))


def test_a_library_cut_off_or_missing_is_an_error() -> None:
    for machine in (_damaged("1000 bytes", whole=False), _damaged("0 bytes"), _damaged("missing")):
        assert _severities(damaged_wheel, machine) == [Severity.ERROR]
    (found,) = damaged_wheel.judge(_damaged("missing"))
    command = "python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"
    assert found.fix[0].command == command


def test_a_stripped_library_is_a_warning_and_so_is_one_removed_from_a_working_torch() -> None:
    assert _severities(damaged_wheel, _damaged("3000 bytes", whole=True)) == [Severity.WARNING]
    assert _severities(damaged_wheel, _damaged("missing", runtime=TorchRuntime(stage="done"))) == [Severity.WARNING]


def test_damage_is_quiet_where_sizes_agree_or_were_not_looked_at() -> None:
    for damaged in ((), None):
        assert list(damaged_wheel.judge(Snapshot(libraries=Libraries(damaged=damaged)))) == []


def test_a_toolkit_of_another_major_is_worth_a_word() -> None:
    torch = TorchBuild(version="2.9.1+cu128", cuda="12.8", build="cuda")

    def machine(nvcc: str | None) -> Snapshot:
        return Snapshot(torch=torch, libraries=Libraries(nvcc_version=nvcc))

    assert [found.seen for found in nvcc_differs.judge(machine("13.0"))] == ["13.0"]
    assert list(nvcc_differs.judge(machine("12.4"))) == []
    assert list(nvcc_differs.judge(machine(None))) == []


def test_a_cuda_home_that_leads_nowhere_is_worth_a_word() -> None:
    (found,) = cuda_home_missing.judge(Snapshot(libraries=Libraries(cuda_home="/opt/cuda", cuda_home_exists=False)))
    assert found.seen == "/opt/cuda is not there"
    assert (
        list(cuda_home_missing.judge(Snapshot(libraries=Libraries(cuda_home="/opt/cuda", cuda_home_exists=True)))) == []
    )


def test_no_toolkit_matters_only_to_packages_that_compile_at_run_time() -> None:
    torch = TorchBuild(version="2.9.1+cu128", cuda="12.8", build="cuda")

    def machine(package: str, toolkits: tuple[str, ...] | None) -> Snapshot:
        installed = (Package(name=package, version="1.0"),)
        libraries = Libraries(toolkits=toolkits)
        return Snapshot(torch=torch, packages=Packages(installed=installed), libraries=libraries)

    assert [found.wanted for found in cuda_home_missing.judge(machine("deepspeed", ()))] == ["one, for deepspeed"]
    assert list(cuda_home_missing.judge(machine("numpy", ()))) == []
    assert list(cuda_home_missing.judge(machine("deepspeed", None))) == []
