"""Rules on packages around torch."""

import pytest

from gpudoctor.facts.host import Host
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.extensions import extension_abi
from gpudoctor.rules.packages import no_c_compiler, numpy_abi, triton_mismatch
from gpudoctor.rules.torchvision import torchaudio_mismatch, torchvision_mismatch
from gpudoctor.snapshot import Snapshot


def _machine(version: str | None, *packages: Package, **other: object) -> Snapshot:
    """A torch, its tag telling its build, and packages."""
    tag = (version or "").partition("+")[2]
    cuda = f"{tag[2:-1]}.{tag[-1]}" if tag.startswith("cu") else None
    build = "cuda" if cuda else "cpu" if tag == "cpu" else None
    torch = TorchBuild(installed=True, version=version, cuda=cuda, build=build)
    return Snapshot(torch=torch, packages=Packages(installed=packages, **other))  # type: ignore[arg-type]


def _judge(asked: Rule[Snapshot], machine: Snapshot) -> list[Evidence]:
    return list(asked.judge(machine))


def _severities(asked: Rule[Snapshot], machine: Snapshot) -> list[Severity]:
    return [found.severity or asked.severity for found in asked.judge(machine)]


def test_torchvision_for_another_torch_is_an_error() -> None:
    vision = Package(name="torchvision", version="0.20.1+cu124", requires_torch="==2.5.1", local_cuda="cu124")
    (found,) = _judge(torchvision_mismatch, _machine("2.4.0+cu121", vision))
    assert (found.seen, found.wanted, found.severity) == ("2.4.0+cu121", "2.5.1, for torchvision 0.20.1+cu124", None)
    assert "0.19.0" in found.fix[0].text


def test_torchvision_in_pasted_text_is_judged_by_the_table() -> None:
    vision = Package(name="torchvision", version="0.20.1+cu124")
    (found,) = _judge(torchvision_mismatch, _machine("2.4.0+cu121", vision))
    assert found.confidence == "likely"
    assert _judge(torchvision_mismatch, _machine("2.5.0+cu124", vision)) == []


@pytest.mark.parametrize(
    ("torch", "vision"),
    [
        ("2.9.1+cu128", Package(name="torchvision", version="0.24.1", requires_torch="==2.9.1", local_cuda="cu128")),
        ("2.14.1+cu132", Package(name="torchvision", version="0.29.2", requires_torch=">=2.14.0", local_cuda="cu130")),
        ("2.16.0+cu132", Package(name="torchvision", version="0.29.2")),
        ("2.9.0a0+git1234", Package(name="torchvision", version="0.24.0", requires_torch="==2.9.0")),
        ("2.8.0a0+5228986c39.nv25.05", Package(name="torchvision", version="0.22.0a0", requires_torch="")),
        ("2.9.1", Package(name="torchvision", version="0.24.1", requires_torch="not a version")),
        ("2.9.1+rocm6.4", Package(name="torchvision", version="0.24.1+rocm6.4", local_cuda="rocm6.4")),
        (None, Package(name="torchvision", version="0.20.1", requires_torch="==2.5.1", local_cuda="cpu")),
        ("2.9.1+cu128", Package(name="torchvision")),
        ("2.9.1+cu126", Package(name="torchvision", version="0.24.1", requires_torch="==2.9.1", local_cuda="cu128")),
    ],
    ids=lambda value: value.version if isinstance(value, Package) else value,
)
def test_torchvision_that_fits_or_cannot_be_judged_is_no_finding(torch: str | None, vision: Package) -> None:
    assert _judge(torchvision_mismatch, _machine(torch, vision)) == []


def test_a_patch_apart_or_code_that_loads_is_a_warning() -> None:
    patch = Package(name="torchvision", version="0.24.0", requires_torch="==2.9.0")
    assert _severities(torchvision_mismatch, _machine("2.9.1+cu128", patch)) == [Severity.WARNING]
    loads = Package(name="torchvision", version="0.24.0", requires_torch="==2.9.0", imported=True)
    assert _severities(torchvision_mismatch, _machine("2.10.0+cu128", loads)) == [Severity.WARNING]


@pytest.mark.parametrize(("torch", "tag"), [("2.9.1+cu130", "cu128"), ("2.9.1+cu128", "cpu"), ("2.9.1+cpu", "cu128")])
def test_torchvision_for_another_cuda_is_an_error(torch: str, tag: str) -> None:
    vision = Package(name="torchvision", version="0.24.1", requires_torch="==2.9.1", local_cuda=tag)
    assert _severities(torchvision_mismatch, _machine(torch, vision)) == [Severity.ERROR]


def test_operators_that_do_not_load_are_an_error_whatever_the_versions_say() -> None:
    error = "RuntimeError: operator torchvision::nms does not exist"
    vision = Package(name="torchvision", version="0.24.1", requires_torch="==2.9.1", import_error=error)
    (found,) = _judge(torchvision_mismatch, _machine("2.9.1+cu128", vision))
    assert found.seen == error
    assert _judge(extension_abi, _machine("2.9.1+cu128", vision)) == []


def test_torchaudio_for_another_torch_or_cuda_speaks() -> None:
    audio = Package(name="torchaudio", version="2.8.0", requires_torch="==2.8.0", local_cuda="cu128")
    assert _severities(torchaudio_mismatch, _machine("2.9.1+cu128", audio)) == [Severity.ERROR]
    tag = Package(name="torchaudio", version="2.9.1", requires_torch="==2.9.1", local_cuda="cu128")
    assert _severities(torchaudio_mismatch, _machine("2.9.1+cu126", tag)) == [Severity.ERROR]
    cpu = Package(name="torchaudio", version="2.9.1", requires_torch="==2.9.1", local_cuda="cpu")
    assert _severities(torchaudio_mismatch, _machine("2.9.1+cu128", cpu)) == [Severity.WARNING]


def test_torchaudio_2_11_fits_other_torches() -> None:
    for audio in (
        Package(name="torchaudio", version="2.11.0", local_cuda="cu130"),
        Package(name="torchaudio", version="2.11.1", requires_torch=">=2.11"),
    ):
        assert _judge(torchaudio_mismatch, _machine("2.14.1+cu132", audio)) == []


def test_torchaudio_is_quiet_where_torch_is_not_known() -> None:
    audio = Package(name="torchaudio", version="2.8.0", requires_torch="==2.8.0")
    assert _judge(torchaudio_mismatch, Snapshot(packages=Packages(installed=(audio,)))) == []


def test_another_triton_than_torch_requires_is_a_warning() -> None:
    machine = _machine("2.9.1+cu128", Package(name="triton", version="3.3.0"), torch_requires={"triton": "==3.5.1"})
    (found,) = _judge(triton_mismatch, machine)
    assert (found.seen, found.wanted) == ("3.3.0", "3.5.1, for torch 2.9.1+cu128")
    assert found.fix[0].command == "pip install 'triton==3.5.1'"


@pytest.mark.parametrize(
    ("torch", "triton", "requires"),
    [
        ("2.9.1+cu128", "3.5.1", {"triton": "==3.5.1"}),
        ("2.9.1+cu128", "3.3.0", {}),  # requires none
        ("2.13.0+cpu", "3.3.0", None),  # a build for the CPU
        ("2.8.0a0+5228986c39.nv25.05", "3.3.0", {"triton": "==3.4.0"}),
        ("2.9.1+cu128", "3.5.0+git1234", {"triton": "==3.5.1"}),
        ("2.8.0", "3.4.0", None),  # pasted text: the table agrees
        ("2.99.0", "3.4.0", None),  # and here it does not know
    ],
)
def test_triton_is_quiet(torch: str, triton: str, requires: dict[str, str] | None) -> None:
    machine = _machine(torch, Package(name="triton", version=triton), torch_requires=requires)
    assert _judge(triton_mismatch, machine) == []


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        ("ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "another torch"),
        ("/x/kernels.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb", "another torch"),
        ("/x/a.so: undefined symbol: _PyGen_Send", "another Python"),
        ("libtorch_cuda.so: cannot open shared object file: No such file or directory", "another build of torch"),
        ("libcudart.so.11.0: cannot open shared object file: No such file or directory", "CUDA 11, torch for 12"),
        ("ModuleNotFoundError: No module named 'flash_attn_2_cuda'", "without its compiled code"),
    ],
)
def test_an_extension_that_does_not_load_is_an_error_with_its_meaning(error: str, meaning: str) -> None:
    package = Package(name="flash-attn", version="2.8.3", import_error=error)
    (found,) = _judge(extension_abi, _machine("2.9.1+cu128", package))
    assert found.seen == error
    assert meaning in found.wanted


@pytest.mark.parametrize(
    "error",
    [
        None,
        "ModuleNotFoundError: No module named 'einops'",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "libcudart.so.12: cannot open shared object file: No such file or directory",
        "libaio.so.1: cannot open shared object file: No such file or directory",
        "/x/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "/x/libtorch_cuda.so: undefined symbol: ncclMemFree",
        "/x/a.so: undefined symbol: _ZSt28__throw_bad_array_new_lengthv, version GLIBCXX_3.4.29",
    ],
)
def test_other_errors_of_an_import_say_nothing_about_torch(error: str | None) -> None:
    package = Package(name="flash-attn", version="2.8.3", import_error=error)
    assert _judge(extension_abi, _machine("2.9.1+cu128", package)) == []


def test_an_extension_that_crashes_is_likely_the_wrong_one_and_one_that_was_killed_is_not() -> None:
    (found,) = _judge(extension_abi, _machine("2.9.1", Package(name="xformers", version="0.0.33", signal=11)))
    assert (found.seen, found.confidence) == ("died by signal 11", "likely")
    assert _judge(extension_abi, _machine("2.9.1", Package(name="xformers", version="0.0.33", signal=9))) == []


def test_numpy_2_with_a_torch_for_numpy_1_is_an_error() -> None:
    (found,) = _judge(numpy_abi, _machine("2.2.2+cu121", Package(name="numpy", version="2.1.0")))
    assert (found.seen, found.wanted) == ("2.1.0", "1.x, for torch 2.2.2+cu121")


def test_a_package_compiled_for_numpy_1_is_named() -> None:
    error = "AttributeError: _ARRAY_API not found"
    (found,) = _judge(numpy_abi, _machine("2.9.1", Package(name="mmcv", import_error=error)))
    assert found.where == "mmcv"


@pytest.mark.parametrize(
    ("torch", "numpy"), [("2.3.0", "2.0.0"), ("2.2.2", "1.26.4"), (None, "2.0.0"), ("2.2.2", None), ("1.13.1", "1.24")]
)
def test_numpy_is_quiet(torch: str | None, numpy: str | None) -> None:
    assert _judge(numpy_abi, _machine(torch, Package(name="numpy", version=numpy))) == []


def test_triton_without_a_c_compiler_is_a_warning() -> None:
    (found,) = _judge(no_c_compiler, _machine("2.9.1+cu128", Package(name="triton", version="3.5.1"), compilers=()))
    assert found.where == "PATH"


def test_no_c_compiler_is_quiet_without_triton_elsewhere_than_linux_and_unread() -> None:
    triton = Package(name="triton", version="3.5.1")
    assert _judge(no_c_compiler, _machine("2.13.0+cpu", compilers=())) == []
    assert _judge(no_c_compiler, _machine("2.9.1+cu128", triton)) == []
    assert _judge(no_c_compiler, _machine("2.9.1+cu128", triton, compilers=("gcc",))) == []
    windows = Snapshot(
        host=Host(system="Windows"),
        torch=TorchBuild(version="2.9.1+cu128"),
        packages=Packages(installed=(triton,), compilers=()),
    )
    assert _judge(no_c_compiler, windows) == []
