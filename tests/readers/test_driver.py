"""The driver's own lines."""

import pytest

from gpudoctor.facts.driver import Driver
from gpudoctor.readers.driver import read

MISMATCH = """\
[  214.113524] NVRM: API mismatch: the client has the version 570.133.07, but
               NVRM: this kernel module has the version 570.124.06.  Please
"""


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.86  Tue Oct 26 21:46:51 UTC 2021",
            Driver(module_version="470.86", module_open=False),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)",
            Driver(module_version="580.95.05", module_open=True),
        ),
        (
            "[    4.1] NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build",
            Driver(module_version="580.95.05", module_open=True),
        ),
        (MISMATCH, Driver(module_version="570.124.06", library_version="570.133.07")),
    ],
)
def test_versions_are_read(text: str, driver: Driver) -> None:
    found = read(text)
    assert found is not None
    assert found.driver == driver


def test_other_lines_of_the_driver_are_none() -> None:
    assert read("NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus.") is None
