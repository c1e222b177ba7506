"""The kernel's age."""

import pytest

from gpudoctor.facts.host import Host
from gpudoctor.rules.host import old_kernel
from gpudoctor.snapshot import Snapshot


@pytest.mark.parametrize("kernel", ["5.4.0-81-generic", "4.18.0-553.el8_10.x86_64", "3.10.0-1160.el7.x86_64"])
def test_old_kernel_speaks_below_5_5(kernel: str) -> None:
    (found,) = old_kernel.judge(Snapshot(host=Host(system="Linux", kernel=kernel)))
    assert found.seen == kernel


@pytest.mark.parametrize(
    "host",
    [
        Host(system="Linux", kernel="5.10.102.1-microsoft-standard-WSL2"),
        Host(system="Linux", kernel="6.8.0-45-generic"),
        Host(system="Darwin", kernel="5.1.0"),
        Host(system="Linux", kernel="unknown"),
        Host(system="Linux"),
        Host(kernel="4.18.0"),
    ],
)
def test_old_kernel_is_quiet(host: Host) -> None:
    assert list(old_kernel.judge(Snapshot(host=host))) == []
