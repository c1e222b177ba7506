"""Read what a kernel log says of GPUs, from the lines of dmesg, journalctl or a paste of either.

The probe uses it too: what this machine's kernel says and what a user pastes are the same text.
"""

from __future__ import annotations

import re

from gpudoctor.facts.kernel_log import KernelLog, XidEvent
from gpudoctor.snapshot import Snapshot

NAME = "kernel log"
MOST_LINES = 200
"""Of each kind, the newest: a faulty board can log thousands a minute."""

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?)(?:\.[0-9a-fA-F])?\): "
    r"(?P<xid>\d+)(?:, ?(?P<text>.*))?"
)
_PROCESS = re.compile(r"pid='?(?P<pid>\d+|<unknown>)'?(?:, name='?(?P<name>[^,']*)'?)?(?:, )?")
_SECONDS = re.compile(r"\[\s*(\d+\.\d+)\]")
_MISMATCH = re.compile(
    r"NVRM: API mismatch: the client has the version (?P<client>[\d.]+\d)\b.{0,80}?"
    r"kernel module has the version (?P<module>[\d.]+\d)\b",
    re.DOTALL,
)
_DECISIVE = re.compile(
    r"NVRM: (.*(?:fallen off the bus|RmInitAdapter failed|requires use of the NVIDIA open kernel modules"
    r"|is not supported by the|No NVIDIA GPU found|probe routine was not called|already bound to nouveau).*)"
)
_OOM = re.compile(r"((?:Memory cgroup out|Out) of memory: Kill(?:ed)? process .*)")


def parse(text: str, *, source: str = "text", uptime_s: float | None = None) -> KernelLog:
    """The events in it, oldest first, the newest MOST_LINES of each kind.

    `uptime_s` is the machine's age at the moment the log was taken. With it, lines that begin with seconds since boot
    (`[  214.113524]`) get an age; all others have none.
    """
    lines = text.splitlines()
    errors = [
        f"API mismatch: the client has the version {found['client']}, the kernel module {found['module']}"
        for found in _MISMATCH.finditer(text)
    ]
    # Xid 79 says "fallen off the bus" too, and is an event already.
    errors += [found[1].strip() for line in lines if "Xid" not in line and (found := _DECISIVE.search(line))]
    xids = [_event(found, line, uptime_s) for line in lines if (found := _XID.search(line))]
    kills = [found[1].strip() for line in lines if (found := _OOM.search(line))]
    return KernelLog(
        source=source,
        xids=tuple(xids[-MOST_LINES:]),
        nvrm_errors=tuple(dict.fromkeys(errors))[-MOST_LINES:],
        oom_kills=tuple(kills[-MOST_LINES:]),
    )


def _event(found: re.Match[str], line: str, uptime_s: float | None) -> XidEvent:
    """The driver began to name the process in r465 or so; `'<unknown>'` stands where there is none."""
    text = found["text"] or ""
    process = _PROCESS.match(text)
    stamp = _SECONDS.search(line[: found.start()])
    pid = process["pid"] if process else ""
    name = process["name"] if process else None
    return XidEvent(
        xid=int(found["xid"]),
        pci_bus_id=found["bus"].lower(),
        text=(text[process.end() :] if process else text).strip() or None,
        age_s=max(0.0, uptime_s - float(stamp[1])) if stamp and uptime_s is not None else None,
        pid=int(pid) if pid.isdecimal() else None,
        process=name if name and name != "<unknown>" else None,
    )


def read(text: str) -> Snapshot | None:
    """As `parse`, of a paste; None where no line of it is the kernel's word on GPUs or memory."""
    if "NVRM" not in text and "ut of memory" not in text:
        return None
    log = parse(text)
    return Snapshot(kernel_log=log) if log.xids or log.nvrm_errors or log.oom_kills else None
