"""Versions as rules compare them."""

import pytest

from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.rules.versions import allows, is_release, numbers, torch_tag, torch_version
from gpudoctor.snapshot import Snapshot


@pytest.mark.parametrize(
    ("requirement", "version", "allowed"),
    [
        ("==2.9.1", "2.9.1+cu128", True),
        ("==2.9.1", "2.9.0+cu128", False),
        (">=2.14.0", "2.14.0+cu130", True),
        (">=2.14.0", "2.13.0", False),
        ("==2.9.0", "2.9.0a0+git1234", True),
        ("", "2.9.0", True),
        ("no requirement", "2.9.0", True),
        ("==2.9.0", "no version", True),
    ],
)
def test_a_requirement_judges_the_release_and_not_its_local_part(requirement: str, version: str, allowed: bool) -> None:
    assert allows(requirement, version) is allowed


def test_builds_of_ones_own_are_no_releases() -> None:
    assert all(map(is_release, ("2.9.1", "2.9.1+cu128", "2.9.1+rocm6.4", "2.8.3.post1")))
    own = ("2.8.0a0+git1234", "2.8.0a0+5228986c39.nv25.05", "2.16.0.dev20261201+cu132", None, "")
    assert not any(map(is_release, own))


def test_numbers_end_where_letters_begin() -> None:
    assert (numbers("2.9.1+cu128"), numbers("2.9.0a0"), numbers("unknown"), numbers(None)) == (
        (2, 9, 1),
        (2, 9, 0),
        None,
        None,
    )


def test_torchs_version_comes_from_its_files_else_from_its_import() -> None:
    runtime = TorchRuntime(version="2.9.1+cu128")
    assert torch_version(Snapshot(torch=TorchBuild(), torch_runtime=runtime)) == "2.9.1+cu128"
    assert torch_version(Snapshot()) is None


def test_torchs_tag_is_known_for_cuda_and_cpu_alone() -> None:
    def tag(**fields: str) -> str | None:
        return torch_tag(Snapshot(torch=TorchBuild(**fields)))  # type: ignore[arg-type]

    assert tag(version="2.9.1", build="cuda", cuda="12.8") == "cu128"
    assert tag(version="2.9.1+cpu") == "cpu"
    assert tag(version="2.9.1+rocm6.4", build="rocm") is None
    assert tag(version="2.9.1") is None
