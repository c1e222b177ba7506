"""Bare metal, virtual machines and WSL told apart."""

import platform
import sys
from pathlib import Path

import pytest

from gpudoctor.probes.host import read
from gpudoctor.probes.system import System


def _machine(root: Path, **files: str) -> System:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(root=root, environ={})


def test_bare_metal(tmp_path: Path) -> None:
    system = _machine(
        tmp_path,
        proc__sys__kernel__hostname="node1\n",
        proc__sys__kernel__osrelease="6.8.0-45-generic\n",
        proc__cpuinfo="processor\t: 0\nflags\t\t: fpu vme sse2 avx512f\n",
        etc__os_release="",
    )
    (tmp_path / "etc/os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n')
    host = read(system)
    assert (host.name, host.kernel, host.distribution) == ("node1", "6.8.0-45-generic", "Ubuntu 24.04.1 LTS")
    assert (host.wsl, host.virtual_machine) == (False, False)


def test_wsl(tmp_path: Path) -> None:
    system = _machine(
        tmp_path,
        proc__sys__kernel__osrelease="5.15.167.4-microsoft-standard-WSL2\n",
        proc__cpuinfo="flags : fpu hypervisor\n",
    )
    host = read(system)
    assert (host.wsl, host.virtual_machine) == (True, True)


@pytest.mark.parametrize(
    ("product", "virtual"),
    [
        ("KVM Virtual Machine", True),
        ("Google Compute Engine", True),
        ("p4d.24xlarge.metal", False),
        ("HGX H100", False),
    ],
)
def test_arm_goes_by_the_firmwares_name(tmp_path: Path, product: str, virtual: bool) -> None:
    path = tmp_path / "sys/class/dmi/id"
    path.mkdir(parents=True)
    (path / "product_name").write_text(f"{product}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert read(System(root=tmp_path, environ={})).virtual_machine is virtual


def test_an_empty_tree_gives_no_answers(tmp_path: Path) -> None:
    host = read(System(root=tmp_path, environ={}))
    assert (host.name, host.kernel, host.distribution, host.virtual_machine) == (None, None, None, None)


def test_this_machine() -> None:
    host = read(System())
    assert (host.name, host.kernel) == (platform.node(), platform.release())
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        assert host.glibc
