"""Read what the kernel log says of GPUs: from /dev/kmsg, else with dmesg, else from the journal."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.probes.system import NotRead, System
from gpudoctor.readers.kernel_log import parse

COMMANDS = (
    ("dmesg",),
    # This boot alone (-b), for its seconds count from another start; and the newest lines, for it may hold months.
    ("journalctl", "-q", "-k", "-b", "-o", "short-monotonic", "--no-pager", "-n", "20000"),
)


def read(system: System) -> KernelLog:
    """The log since boot as far as it is kept. In a container it is the host's.

    Raises NotRead where this user may not read it (kernel.dmesg_restrict=1 and no root).
    """
    if not system.live:
        # A recorded machine keeps the output of dmesg.
        return parse(system.text("/dev/kmsg"), source="/dev/kmsg", uptime_s=_recorded_uptime_s(system))
    uptime_s = time.monotonic()
    with suppress(OSError):
        if text := kmsg_text(_records(system)):
            return parse(text, source="/dev/kmsg", uptime_s=uptime_s)
    for command in COMMANDS:
        with suppress(NotRead):
            if text := system.run(command, timeout_s=2.0):
                return parse(text, source=command[0], uptime_s=uptime_s)
    raise NotRead("needs root" if os.geteuid() else "the kernel log is hidden from this container")


def _records(system: System) -> list[bytes]:
    """One read gives one record; the end is told by "would block"."""
    records: list[bytes] = []
    kmsg = os.open(system.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(kmsg, 16384)
            except BlockingIOError:
                return records
            except BrokenPipeError:
                continue  # overwritten while we read; the next read goes on behind the gap
            if not record:
                return records
            records.append(record)
    finally:
        os.close(kmsg)


def kmsg_text(records: list[bytes]) -> str:
    """As dmesg prints them: `[  214.113524] NVRM: …`.

    A record reads `priority,sequence,microseconds,flags;message`, with other bytes than ASCII as `\\xNN`, and lines
    below it that begin with a blank and are not the message's. Source: Documentation/ABI/testing/dev-kmsg of Linux.
    """
    lines: list[str] = []
    for record in records:
        head, _, message = record.decode("ascii", errors="replace").partition(";")
        first = re.sub(r"\\x([0-9a-f]{2})", lambda byte: chr(int(byte[1], 16)), message.split("\n", 1)[0])
        if len(fields := head.split(",")) > 2 and fields[2].isdecimal():
            lines.append(f"[{int(fields[2]) / 1e6:12.6f}] {first}")
    return "\n".join(lines)


def _recorded_uptime_s(system: System) -> float | None:
    words = (system.text_or_none("/proc/uptime") or "").split()
    return float(words[0]) if words else None
