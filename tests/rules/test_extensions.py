"""Code compiled against torch."""

import pytest

from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule
from gpudoctor.rules.extensions import extension_abi
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
