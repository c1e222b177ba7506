"""States and error counts of NVLinks."""

from gpudoctor.facts.topology import NvLink
from gpudoctor.readers.nvlink import read

STATUS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
\t Link 0: 26.562 GB/s
"""
ERRORS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: Replay Errors: 7
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 3
"""


def test_states_and_counts_go_to_one_link() -> None:
    found = read(STATUS + ERRORS)
    assert found is not None
    assert found.topology is not None
    assert found.topology.nvlinks == (
        NvLink(gpu=0, link=0, active=True, replay_errors=7, recovery_errors=0, crc_errors=3),
        NvLink(gpu=0, link=1, active=False),
        NvLink(gpu=1, link=0, active=True),
    )


def test_other_links_are_none() -> None:
    assert read("Link 0: click here\nLink 1: https://example.org") is None
