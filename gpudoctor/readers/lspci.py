"""Read what `lspci -vv` says of links and of Access Control Services, whole or through grep."""

from __future__ import annotations

import re

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import AcsBridge, Topology
from gpudoctor.readers.quantities import bus_id
from gpudoctor.snapshot import Snapshot

NAME = "lspci"
MOST_BRIDGES = 1024
GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s → PCI Express generation."""

_DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (\S.{0,200})")
_ACS = re.compile(r"ACSCtl:\s{1,4}SrcValid([+-]) TransBlk[+-] ReqRedir([+-]) CmpltRedir([+-])")
_LINK = re.compile(r"Lnk(Cap|Sta):.{0,40}?Speed ([\d.]{1,4})GT/s(?: \(\w{1,12}\))?, Width x(\d{1,2})")


def read(text: str) -> Snapshot | None:
    """Bridges that send peer traffic up to the root, and the links of NVIDIA's boards.

    Lines without the device they belong to (grep) are taken for what was asked for: a bridge, or the one board.
    """
    if "ACSCtl:" not in text and "LnkSta:" not in text:
        return None
    bridges: dict[str, AcsBridge] = {}
    links: dict[str, dict[str, int]] = {}
    place, device = "", ""
    redirects = False
    for line in text.splitlines():
        if line[:1] in "0123456789abcdef" and (header := _DEVICE.match(line)):
            place, device = header[1], header[2]
        elif "ACSCtl:" in line and (acs := _ACS.search(line)):
            redirects = True
            is_bridge = not device or "PCI bridge" in device
            if "+" in (acs[2], acs[3]) and is_bridge and len(bridges) < MOST_BRIDGES:
                name = place or f"bridge {len(bridges) + 1}"
                bridges.setdefault(name, AcsBridge(bus_id=name))
        elif "Lnk" in line and (not device or _is_board(device)) and (link := _LINK.search(line)):
            told = links.setdefault(place, {})
            end = "_max" if link[1] == "Cap" else ""
            told["pcie_width" + end] = int(link[3])
            if (generation := GENERATIONS.get(link[2].removesuffix(".0"))) is not None:
                told["pcie_generation" + end] = generation
    boards = [
        Gpu(index=index, pci_bus_id=bus_id(name), **told)  # type: ignore[arg-type]
        for index, (name, told) in enumerate(list(links.items())[:256])
    ]
    if not boards and not redirects:
        return None
    return Snapshot(
        gpus=Gpus(boards=tuple(boards), source="text") if boards else None,
        topology=Topology(acs_bridges=tuple(bridges.values())) if redirects else None,
    )


def _is_board(device: str) -> bool:
    return "NVIDIA" in device and ("3D controller" in device or "VGA" in device)
