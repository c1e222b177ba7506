"""Read whether the kernel's clock is kept in step, by adjtimex."""

from __future__ import annotations

import ctypes
import os
import sys

from gpudoctor.facts.clock import Clock
from gpudoctor.probes.system import NotRead, System

STA_UNSYNC = 0x40  # include/uapi/linux/timex.h


class _Timex(ctypes.Structure):
    """The head of struct timex, and room for the rest of it (208 bytes on 64-bit machines)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def read(system: System) -> Clock:
    """The kernel's own flag; with `modes` 0 the call only reads and needs no right.

    Raises NotRead on other systems and where a sandbox forbids the call. Source: adjtimex(2).
    """
    if not system.live:
        raise NotRead("a recorded machine")
    if sys.platform != "linux":
        raise NotRead("only Linux tells")
    state = _Timex(modes=0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(state)) == -1:
        raise NotRead(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    return Clock(synchronised=not state.status & STA_UNSYNC, max_error_s=state.maxerror / 1e6)
