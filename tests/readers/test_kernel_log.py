"""Kernel log lines of several driver generations."""

import pytest

from gpudoctor.facts.kernel_log import XidEvent
from gpudoctor.readers.kernel_log import MOST_LINES, parse


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "[  100.500000] NVRM: Xid (PCI:0000:9c:00): 94, pid=20112, name=python3, Contained: SM (0x1). RST: No",
            XidEvent(
                xid=94,
                pci_bus_id="0000:9c:00",
                text="Contained: SM (0x1). RST: No",
                age_s=99.5,
                pid=20112,
                process="python3",
            ),
        ),
        (
            "[Sat Sep  5 03:51:12 2026] NVRM: Xid (PCI:0000:0B:00): 79, pid='<unknown>', name=<unknown>, GPU is lost",
            XidEvent(xid=79, pci_bus_id="0000:0b:00", text="GPU is lost"),
        ),
        (
            "Sep  5 03:51:12 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, Graphics SM Warp Exception",
            XidEvent(xid=13, pci_bus_id="0000:3b:00", text="Graphics SM Warp Exception", pid=1234),
        ),
        (
            "NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000101, intr 10000000",
            XidEvent(xid=31, pci_bus_id="0000:01:00", text="Ch 0000000b, engmask 00000101, intr 10000000"),
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)",
            XidEvent(xid=145, pci_bus_id="0018:01:00", text="RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)"),
        ),
        ("NVRM: Xid (PCI:0000:01:00): 62", XidEvent(xid=62, pci_bus_id="0000:01:00")),
    ],
)
def test_an_xid_line_of_each_layout(line: str, event: XidEvent) -> None:
    assert parse(line, uptime_s=200.0).xids == (event,)


def test_an_api_mismatch_over_several_lines_is_one_error() -> None:
    text = (
        "[  214.113524] NVRM: API mismatch: the client has the version 570.133.07, but\n"
        "               NVRM: this kernel module has the version 570.124.06.  Please\n"
        "               NVRM: make sure that this kernel module and all NVIDIA driver\n"
    )
    (error,) = parse(text * 2).nvrm_errors
    assert error == "API mismatch: the client has the version 570.133.07, the kernel module 570.124.06"


def test_decisive_lines_are_kept_once_and_chatter_is_not() -> None:
    text = (
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        "NVRM: GPU 0000:0b:00.0: GPU has fallen off the bus.\n"
        "NVRM: GPU 0000:0b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)\n"
        "NVRM: GPU 0000:0b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)\n"
        "NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus.\n"
    )
    log = parse(text)
    assert log.nvrm_errors == (
        "GPU 0000:0b:00.0: GPU has fallen off the bus.",
        "GPU 0000:0b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",
    )
    assert [event.xid for event in log.xids] == [79]


def test_kills_for_want_of_memory_old_and_new() -> None:
    text = (
        "[  9.1] Memory cgroup out of memory: Killed process 71 (python) total-vm:1kB\n"
        "[  9.2] Out of memory: Kill process 72 (pt_data_worker) score 900 or sacrifice child\n"
        "[  9.3] oom_reaper: reaped process 71 (python)\n"
    )
    assert [line.split(" (")[0] for line in parse(text).oom_kills] == [
        "Memory cgroup out of memory: Killed process 71",
        "Out of memory: Kill process 72",
    ]


def test_a_flood_keeps_the_newest() -> None:
    text = "\n".join(f"NVRM: Xid (PCI:0000:0b:00): 31, Ch {number}" for number in range(MOST_LINES + 5))
    xids = parse(text).xids
    assert (len(xids), xids[0].text) == (MOST_LINES, "Ch 5")


def test_a_text_about_something_else_is_empty() -> None:
    assert parse("Xid errors are explained in the manual\n") == parse("")
