"""Rules on the torch installation."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.torch import (
    another_python,
    cpu_only_torch,
    no_torch,
    python_unsupported,
    rocm_torch_on_nvidia,
)
from gpudoctor.snapshot import Snapshot

CPU_BUILD = TorchBuild(installed=True, version="2.13.0+cpu", build="cpu")
ONE_GPU = Gpus(boards=(Gpu(index=0, name="NVIDIA L4"),))
BARE_METAL = Container(kind=None)


def _said(asked: Rule[Snapshot], **facts: object) -> list[Evidence]:
    return list(asked.judge(msgspec.structs.replace(Snapshot(), **facts)))


def test_no_torch_names_the_interpreter() -> None:
    (found,) = _said(no_torch, torch=TorchBuild(installed=False, python="/usr/bin/python3"))
    assert "/usr/bin/python3" in found.seen


def test_no_torch_is_quiet_when_the_path_was_not_read() -> None:
    assert _said(no_torch, torch=TorchBuild()) == []


def test_no_torch_is_quiet_when_an_import_found_it() -> None:
    runtime = TorchRuntime(stage="done", version="2.13.0")
    assert _said(no_torch, torch=TorchBuild(installed=False), torch_runtime=runtime) == []


def test_cpu_only_torch_is_an_error_beside_a_gpu() -> None:
    (found,) = _said(cpu_only_torch, torch=CPU_BUILD, gpus=ONE_GPU)
    assert found.severity is Severity.ERROR


def test_cpu_only_torch_is_an_error_where_a_gpu_waits_for_its_driver() -> None:
    (found,) = _said(cpu_only_torch, torch=CPU_BUILD, driver=Driver(pci_gpus=1), container=BARE_METAL)
    assert found.severity is Severity.ERROR


def test_cpu_only_torch_is_a_warning_on_a_laptop() -> None:
    (found,) = _said(cpu_only_torch, torch=CPU_BUILD, gpus=Gpus(), driver=Driver(pci_gpus=0), container=BARE_METAL)
    assert found.severity is Severity.WARNING


def test_cpu_only_torch_is_a_warning_in_a_container_that_only_sees_the_bus_of_a_gpu_host() -> None:
    container = Container(kind="docker")
    (found,) = _said(cpu_only_torch, torch=CPU_BUILD, driver=Driver(pci_gpus=8), container=container)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize("build", ["rocm", "xpu", "mps", "cuda", None])
def test_cpu_only_torch_is_quiet_for_other_builds(build: str | None) -> None:
    assert _said(cpu_only_torch, torch=TorchBuild(installed=True, build=build), gpus=ONE_GPU) == []


@pytest.mark.parametrize(
    "facts", [{"expected": Expected(device="cpu")}, {"host": Host(system="Darwin")}], ids=["policy", "macOS"]
)
def test_cpu_only_torch_is_quiet_where_it_is_meant(facts: dict[str, object]) -> None:
    assert _said(cpu_only_torch, torch=CPU_BUILD, **facts) == []


def test_python_unsupported_speaks_of_a_wheel_for_another_python() -> None:
    build = TorchBuild(installed=True, python_tag="cp312", python_tags=("cp311-cp311-manylinux_2_28_x86_64",))
    (found,) = _said(python_unsupported, torch=build)
    assert found.wanted == "a wheel for cp312"


def test_python_unsupported_speaks_where_no_release_has_a_wheel() -> None:
    (found,) = _said(python_unsupported, torch=TorchBuild(installed=False, python_tag="cp399", python_version="3.99.0"))
    assert found.seen == "3.99.0"
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    ("interpreter", "tag"),
    [
        ("cp312", "cp312-cp312-manylinux_2_28_x86_64"),
        ("cp313t", "cp313-cp313t-manylinux_2_28_x86_64"),
        ("cp37", "cp37-cp37m-manylinux1_x86_64"),
        ("cp312", "cp39-abi3-manylinux_2_28_x86_64"),
        ("cp312", "py3-none-any"),
    ],
)
def test_python_unsupported_is_quiet_for_wheels_that_fit(interpreter: str, tag: str) -> None:
    assert _said(python_unsupported, torch=TorchBuild(installed=True, python_tag=interpreter, python_tags=(tag,))) == []


def test_python_unsupported_is_quiet_when_torch_imports() -> None:
    build = TorchBuild(installed=True, python_tag="cp312", python_tags=("cp311-cp311-linux_x86_64",))
    assert _said(python_unsupported, torch=build, torch_runtime=TorchRuntime(stage="done", version="2.9.1")) == []


def test_python_unsupported_is_quiet_where_torch_is_absent_and_could_be_installed() -> None:
    for tag in ("cp39", "cp312", "cp314t"):
        assert _said(python_unsupported, torch=TorchBuild(installed=False, python_tag=tag)) == []


ROCM_BUILD = TorchBuild(installed=True, version="2.9.1+rocm6.4", build="rocm")


def test_rocm_torch_on_nvidia_names_the_card() -> None:
    (found,) = _said(rocm_torch_on_nvidia, torch=ROCM_BUILD, gpus=ONE_GPU)
    assert "NVIDIA L4" in found.wanted


def test_rocm_torch_on_nvidia_is_quiet_on_an_amd_machine() -> None:
    assert _said(rocm_torch_on_nvidia, torch=ROCM_BUILD, gpus=Gpus()) == []
    assert _said(rocm_torch_on_nvidia, torch=ROCM_BUILD) == []


def test_rocm_torch_on_nvidia_is_quiet_where_an_amd_card_stands_beside_it() -> None:
    runtime = TorchRuntime(stage="done", rocm="6.4", cuda_available=True)
    assert _said(rocm_torch_on_nvidia, torch=ROCM_BUILD, gpus=ONE_GPU, torch_runtime=runtime) == []


def test_another_python_names_both() -> None:
    build = TorchBuild(python="/opt/venv/bin/python", path_python="/usr/bin/python")
    (found,) = _said(another_python, torch=build)
    assert (found.seen, found.wanted) == ("/usr/bin/python", "/opt/venv/bin/python")


def test_another_python_is_quiet_without_one_on_path_and_for_the_same() -> None:
    assert _said(another_python, torch=TorchBuild(python="/opt/venv/bin/python")) == []
    same = TorchBuild(python="/opt/venv/bin/python", path_python="/opt/venv/bin/python")
    assert _said(another_python, torch=same) == []
