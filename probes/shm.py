"""Read /dev/shm."""

from __future__ import annotations

import os

from gpudoctor.facts.shm import Shm
from gpudoctor.probes.system import System


def read(system: System) -> Shm:
    """Placeholder of the house's first hour: size and free space."""
    stat = os.statvfs(system.path("/dev/shm"))
    return Shm(exists=True, total_bytes=stat.f_frsize * stat.f_blocks, free_bytes=stat.f_frsize * stat.f_bavail)
