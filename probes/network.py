"""Read the network of a job: host name, interfaces, RDMA ports, where MASTER_ADDR leads.

No connection is opened. The one question that may leave this machine is the resolver's, for MASTER_ADDR alone and
only where the user's own launch variables name it: the job is about to ask the same.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Any

from gpudoctor.facts.network import Interface, Network, RdmaPort
from gpudoctor.probes import resolver
from gpudoctor.probes.sockets import Listener, inodes, is_loopback, listeners, processes
from gpudoctor.probes.system import NotRead, System

DMABUF_KERNEL = (5, 12)  # NVIDIA GPU Operator documentation, GPUDirect RDMA, requirements for DMA-BUF


def read(system: System) -> Network:
    """Everything as far as it can be read; the parts that could not are in `unread`."""
    unread: dict[str, str] = {}
    host_name = _host_name(system)
    interfaces = _interfaces(system)
    hosts = resolver.Hosts(system, host_name, interfaces or ())
    host_addresses = hosts.lookup(host_name) if host_name else None
    if host_name and host_addresses is None:
        unread["host_addresses"] = f"{host_name} is not in /etc/hosts: would need DNS"
    return Network(
        host_name=host_name,
        host_addresses=host_addresses,
        interfaces=interfaces,
        **_master(system, hosts, unread),
        rdma_ports=_rdma_ports(system),
        peermem_loaded=_peermem_loaded(system),
        dmabuf=_dmabuf(system),
        unread=unread,
    )


def _host_name(system: System) -> str | None:
    return socket.gethostname() if system.live else system.text_or_none("/proc/sys/kernel/hostname")


def _interfaces(system: System) -> tuple[Interface, ...] | None:
    """From the system's calls; of a recorded tree, from /sys/class/net, which has no addresses."""
    if not system.live:
        folders = list(system.glob("/sys/class/net/*"))
        return tuple(_recorded_interface(system, folder.name) for folder in folders) or None
    import psutil

    addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    found = []
    for name in sorted({*addresses, *states}):
        families = (socket.AF_INET, socket.AF_INET6)
        own = tuple(item.address.partition("%")[0] for item in addresses.get(name, ()) if item.family in families)
        state = states.get(name)
        found.append(
            Interface(
                name=name,
                up=state.isup if state else None,
                loopback=name == "lo" or (bool(own) and all(is_loopback(item) for item in own)),
                addresses=own,
                speed_mb_s=(state.speed or None) if state else None,
            )
        )
    return tuple(found)


def _recorded_interface(system: System, name: str) -> Interface:
    folder = f"/sys/class/net/{name}"
    flags = int(system.text_or_none(f"{folder}/flags") or "0", 16)
    speed = system.text_or_none(f"{folder}/speed")
    return Interface(
        name=name,
        up=bool(flags & 0x1) if flags else None,
        loopback=bool(flags & 0x8) or name == "lo",
        speed_mb_s=int(speed) if speed and speed.isdigit() and int(speed) else None,
    )


def _master(system: System, hosts: resolver.Hosts, unread: dict[str, str]) -> dict[str, Any]:
    """The fields on MASTER_ADDR and MASTER_PORT; empty where no launch variable names them."""
    name = system.environ.get("MASTER_ADDR", "").strip()
    if not name:
        return {}
    name = name.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
    port_text = system.environ.get("MASTER_PORT", "").strip()
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else None
    addresses, error = hosts.lookup(name), None
    if addresses is None and system.live:
        try:
            addresses, error = resolver.ask(name)
        except NotRead as reason:
            unread["master_addresses"] = str(reason)
    elif addresses is None:
        unread["master_addresses"] = "would need DNS"
    fields: dict[str, Any] = {"master_addr": name, "master_addresses": addresses, "master_error": error}
    fields["master_port"] = port
    if addresses and port and hosts.is_here(addresses):
        try:
            taken = [listener for listener in listeners(system) if listener.port == port]
            fields |= {"master_port_in_use": bool(taken), "master_port_owner": _owner(system, taken)}
        except NotRead as reason:
            unread["master_port"] = str(reason)
    return fields


def _owner(system: System, taken: list[Listener]) -> str | None:
    """`python (4711)`; None where it is another user's."""
    wanted = {listener.inode for listener in taken}
    for pid, folder in processes(system) if wanted else ():
        if wanted & inodes(folder):
            return f"{system.text_or_none(f'/proc/{pid}/comm') or 'process'} ({pid})"
    return None


def _rdma_ports(system: System) -> tuple[RdmaPort, ...] | None:
    if not system.path("/sys/class").is_dir():
        return None
    found = []
    for folder in system.glob("/sys/class/infiniband/*/ports/*"):
        if not folder.name.isdigit():
            continue
        device, path = folder.parent.parent.name, f"/{folder.relative_to(system.root)}"
        # `4: ACTIVE`, `5: LinkUp`
        state, physical = (
            (system.text_or_none(f"{path}/{name}") or "").partition(": ")[2] or None for name in ("state", "phys_state")
        )
        found.append(
            RdmaPort(
                device=device,
                port=int(folder.name),
                state=state,
                physical_state=physical,
                link_layer=system.text_or_none(f"{path}/link_layer"),
                rate=system.text_or_none(f"{path}/rate"),
            )
        )
    return tuple(found)


def _peermem_loaded(system: System) -> bool | None:
    modules = system.text_or_none("/proc/modules")
    if modules is None:
        return None
    return any(line.split(" ", 1)[0] in {"nvidia_peermem", "nv_peer_mem"} for line in modules.splitlines())


def _dmabuf(system: System) -> bool | None:
    """The proprietary module has none, nor have older kernels."""
    driver = system.text_or_none("/proc/driver/nvidia/version")
    kernel = os.uname().release if system.live else system.text_or_none("/proc/sys/kernel/osrelease")
    numbers = re.match(r"(\d+)\.(\d+)", kernel or "")
    if driver is None or numbers is None:
        return None
    return "Open Kernel Module" in driver and (int(numbers[1]), int(numbers[2])) >= DMABUF_KERNEL
