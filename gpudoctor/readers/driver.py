"""Read the driver's own lines: /proc/driver/nvidia/version, what its module says when it is loaded, modinfo."""

from __future__ import annotations

import re

from gpudoctor.facts.driver import Driver
from gpudoctor.snapshot import Snapshot

NAME = "driver version"

_MODULE = re.compile(
    r"NVRM(?: version|: loading):? NVIDIA UNIX (?P<flavour>[^\n]{0,40}?)Kernel Module[^\n]{0,20}?\s{1,4}"
    r"(?P<version>\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b"
)
_MISMATCH = re.compile(r"API mismatch: the client has the version (?P<client>[\d.]{3,16}\d)\b")
_THE_MODULE = re.compile(r"kernel module has the version (?P<module>[\d.]{3,16}\d)\b")


def read(text: str) -> Snapshot | None:
    """The loaded module, and the library that it refused last."""
    if "NVRM" not in text and "API mismatch" not in text:
        return None
    module = client = None
    flavour: bool | None = None
    for match in _MODULE.finditer(text):
        module, flavour = match["version"], "Open" in match["flavour"]
    for match in _MISMATCH.finditer(text):
        client = match["client"]
        below = _THE_MODULE.search(text, match.end(), match.end() + 200)
        module = module or (below["module"] if below else None)
    if module is None and client is None:
        return None
    return Snapshot(driver=Driver(module_version=module, module_open=flavour, library_version=client))
