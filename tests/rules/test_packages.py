"""Rules on packages around torch."""

import pytest

from gpudoctor.facts.host import Host
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule
from gpudoctor.rules.packages import no_c_compiler, numpy_abi, triton_mismatch
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
