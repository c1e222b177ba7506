"""Read `nvidia-smi nvlink -s` (which links are up) and `nvlink -e` (their error counts)."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.facts.topology import NvLink, Topology
from gpudoctor.readers.quantities import whole
from gpudoctor.snapshot import Snapshot

NAME = "nvidia-smi nvlink"
MOST_LINKS = 4096
"""Of all boards together."""

_BOARD = re.compile(r"\s{0,16}GPU (\d{1,3}): ")
_LINK = re.compile(
    r"\s{0,16}Link (\d{1,2}): (?:(?P<rate>[\d.]{1,12} GB/s)|(?P<down><inactive>)|(?P<count>[A-Z][\w ]{1,40}: \d{1,12}))"
)
COUNTS = {"Replay Errors": "replay_errors", "Recovery Errors": "recovery_errors", "CRC Errors": "crc_errors"}


def read(text: str) -> Snapshot | None:
    """Each link of each board; the counts go to the same link."""
    if "Link " not in text:
        return None
    links: dict[tuple[int, int], dict[str, Any]] = {}
    gpu = 0
    for line in text.splitlines():
        if board := _BOARD.match(line):
            gpu = int(board[1])
        elif "Link " in line and (link := _LINK.match(line)):
            place = (gpu, int(link[1]))
            if len(links) >= MOST_LINKS and place not in links:
                continue
            told = links.setdefault(place, {})
            if link["count"]:
                name, _, count = link["count"].partition(": ")
                if name in COUNTS:
                    told[COUNTS[name]] = whole(count)
            else:
                told["active"] = link["down"] is None
    if not any(links.values()):
        return None
    return Snapshot(
        topology=Topology(nvlinks=tuple(NvLink(gpu=gpu, link=link, **links[gpu, link]) for gpu, link in sorted(links)))
    )
