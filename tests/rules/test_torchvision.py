"""torchvision and torchaudio beside a torch."""

import pytest

from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.extensions import extension_abi
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
        ("2.14.0+cpu", Package(name="torchvision", version="0.29.0+cpu", local_cuda="cpu")),
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
