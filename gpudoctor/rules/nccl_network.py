"""What NCCL and gloo will find of a network: interfaces by name, RDMA ports, GPUDirect."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.network import Interface, Network, RdmaPort
from gpudoctor.findings import Evidence, Fix, Severity, rule
from gpudoctor.rules import nccl_log
from gpudoctor.rules.launch import nodes, number, several_nodes, without_gpus
from gpudoctor.snapshot import Snapshot

GUIDE = "NVIDIA NCCL user guide, Environment Variables"


def value(environment: Environment, name: str, wanted: str, severity: Severity | None = None) -> Evidence:
    """Evidence of a variable's value, and whether it stands in a file instead."""
    origin = "" if name in environment.variables else " in NCCL's configuration file"
    return Evidence(where=name, what="value", seen=f"{environment.get(name)}{origin}", wanted=wanted, severity=severity)


@rule(
    "NCC003",
    "ib-disabled",
    Severity.WARNING,
    why="traffic between nodes goes over TCP although RDMA ports are up",
    fix=Fix("unset it", "unset NCCL_IB_DISABLE"),
    confirm="echo $NCCL_IB_DISABLE; cat /etc/nccl.conf ~/.nccl.conf; ibstat",
    source=GUIDE,
)
def ib_disabled(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_IB_DISABLE is set and the node has RDMA ports that are up.

    Silent without RDMA ports (clouds without them set it on purpose), with EFA alone, which NCCL reaches through a
    plugin, and where NCCL_NET names a plugin. An info where the job is known to stay on one node.
    """
    environment = machine.environment
    if environment is None or machine.network is None or without_gpus(machine):
        return
    if not number(environment.get("NCCL_IB_DISABLE")) or _uses_plugin(environment):
        return
    if any(port.state in {None, "ACTIVE"} for port in _verbs_ports(machine.network)):
        severity = Severity.INFO if nodes(machine) == 1 else None
        yield value(environment, "NCCL_IB_DISABLE", "unset or 0: RDMA ports are up", severity)


def _verbs_ports(network: Network) -> list[RdmaPort]:
    """Ports that NCCL's own IB transport can use; EFA, whose link layer is `Unspecified`, is none."""
    ports = network.rdma_ports or ()
    return [port for port in ports if port.link_layer in {None, "InfiniBand", "Ethernet"}]


def _uses_plugin(environment: Environment) -> bool:
    """A network plugin is asked for by name (libfabric, GPUDirect-TCPX, …)."""
    if (environment.get("NCCL_NET") or "IB").lower() not in {"ib", "socket"}:
        return True
    prefixes = ("NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "FI_EFA_", "FI_CXI_", "OFI_NCCL_")
    return any(name.startswith(prefixes) for name in environment.variables)


@rule(
    "NCC008",
    "no-such-interface",
    Severity.ERROR,
    why="ranks cannot open the sockets they meet on, and the job ends or hangs at its start",
    fix=Fix("name an interface this node has, or let NCCL choose", "unset NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME"),
    confirm="ip -brief address; echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME",
    source="NVIDIA NCCL user guide, NCCL_SOCKET_IFNAME; PyTorch documentation, torch.distributed",
)
def no_such_interface(machine: Snapshot) -> Iterator[Evidence]:
    """NCCL_SOCKET_IFNAME leaves no interface of this node or only ones that are down, GLOO_SOCKET_IFNAME names such, or
    NCCL or gloo says that it found none.

    NCCL's value is a list of prefixes (`eth` fits eth0), exact after `=`, to exclude after `^`; gloo's a list of names
    that must all be there. Silent where interfaces were not read. NCCL's is a warning on a node without known GPUs: a
    login node may lack the interface that the nodes of the job have.
    """
    for text in machine.told("no_such_interface"):
        name = text.words["interface"]
        yield Evidence(where="GLOO_SOCKET_IFNAME", what="value", seen=name, wanted="an interface of this node")
    if machine.nccl_log is not None and machine.nccl_log.no_interface:
        yield Evidence(where="NCCL_SOCKET_IFNAME", what="NCCL", seen="no socket interface found", wanted="one")
    if machine.environment is None or machine.network is None or machine.network.interfaces is None:
        return
    for name, interfaces in _chosen(machine.environment, machine.network.interfaces).items():
        elsewhere = name == "NCCL_SOCKET_IFNAME" and not (machine.gpus and machine.gpus.boards)
        if name == "NCCL_SOCKET_IFNAME" and without_gpus(machine):
            continue
        lacking = name == "GLOO_SOCKET_IFNAME" and len(interfaces) < len(_listed(machine.environment.variables[name]))
        if lacking or all(interface.up is False for interface in interfaces):
            present = ", ".join(interface.name for interface in machine.network.interfaces if not interface.loopback)
            wanted = f"one of {present}" if present else "an interface of this node"
            found = value(machine.environment, name, wanted)
            yield msgspec.structs.replace(found, severity=Severity.WARNING, confidence="likely") if elsewhere else found


def _chosen(environment: Environment, interfaces: tuple[Interface, ...]) -> dict[str, list[Interface]]:
    """The interfaces each variable leaves, by its name; variables that are unset or empty leave the choice open."""
    chosen: dict[str, list[Interface]] = {}
    if pattern := (environment.get("NCCL_SOCKET_IFNAME") or "").strip():
        chosen["NCCL_SOCKET_IFNAME"] = [item for item in interfaces if fits(pattern, item.name)]
    if names := environment.variables.get("GLOO_SOCKET_IFNAME", "").strip():
        chosen["GLOO_SOCKET_IFNAME"] = [item for item in interfaces if item.name in _listed(names)]
    return chosen


def _listed(names: str) -> set[str]:
    return {name.strip() for name in names.split(",") if name.strip()}


def fits(pattern: str, name: str) -> bool:
    """NCCL_SOCKET_IFNAME as NCCL reads it: `^` and `=` stand before the whole list and hold for all of it."""
    exclude, pattern = pattern.startswith("^"), pattern.removeprefix("^")
    exact, pattern = pattern.startswith("="), pattern.removeprefix("=")
    parts = [part.partition(":")[0] for part in pattern.split(",") if part]
    return any(name == part if exact else name.startswith(part) for part in parts) is not exclude


@rule(
    "NCC009",
    "ib-port-down",
    Severity.WARNING,
    why="NCCL leaves out a port that is not ACTIVE, and the GPUs next to it share another one's bandwidth",
    fix=Fix("check cable, switch port and subnet manager", "ibstat", safety="safe"),
    confirm="ibstat",
    source="NVIDIA NCCL, src/transport/net_ib: ports whose state is not ACTIVE are skipped",
)
def ib_port_down(machine: Snapshot) -> Iterator[Evidence]:
    """An InfiniBand port has a link but no subnet manager, a faulty link, or is the one missing of a full set.

    An info, likely, for other ports that are down: second ports and storage cards are often left without a cable.
    Silent for ports that are switched off (physical state Disabled) and for Ethernet, unless NCCL_IB_HCA names them.
    """
    network, environment = machine.network, machine.environment or Environment()
    ports = _verbs_ports(network) if network else []
    infiniband = [port for port in ports if port.link_layer != "Ethernet"]
    active = sum(port.state == "ACTIVE" for port in infiniband)
    gpus = len(machine.gpus.boards) if machine.gpus else 0
    incomplete = 4 <= active < gpus  # a rail for each GPU, of which one is lost
    hca = environment.get("NCCL_IB_HCA") or "^"
    for port in ports:
        named = not hca.startswith("^") and fits(hca, port.device)
        idle = port.physical_state == "Disabled" or port not in infiniband
        if port.state in {None, "ACTIVE"} or (idle and not named):
            continue
        faulty = port.state in {"INIT", "ARMED"} or port.physical_state == "LinkErrorRecovery"
        certain = named or faulty or incomplete
        state = f"{port.state}, {port.physical_state}" if port.physical_state else f"{port.state}"
        yield Evidence(
            where=f"{port.device} port {port.port}",
            what="port state",
            seen=state,
            wanted="ACTIVE",
            severity=None if certain else Severity.INFO,
            confidence="certain" if certain else "likely",
        )


@rule(
    "NCC010",
    "no-gpudirect",
    Severity.WARNING,
    why="data between nodes takes a detour through host memory",
    fix=Fix("load NVIDIA's peer memory module, or use the open kernel module", "modprobe nvidia-peermem", "needs root"),
    confirm="lsmod | grep -E 'nvidia_peermem|nv_peer_mem'; NCCL_DEBUG=INFO shows GDRDMA where it works",
    source="NVIDIA GPUDirect RDMA documentation; NVIDIA NCCL user guide, NCCL_NET_GDR_LEVEL and NCCL_DMABUF_ENABLE",
    because=("NCC003",),
)
def no_gpudirect(machine: Snapshot) -> Iterator[Evidence]:
    """RDMA ports are up, and neither peer memory module nor DMA-BUF is there, or NCCL_NET_GDR_LEVEL switches it off.

    Silent with EFA alone, and with GeForce cards, which have no GPUDirect RDMA. An info where the job is known to stay
    on one node, and with RoCE where it is not known to span several: many servers have such ports and never use them.
    """
    network, environment = machine.network, machine.environment or Environment()
    if network is None or machine.gpus is None or not machine.gpus.boards or _uses_plugin(environment):
        return
    if all("GeForce" in (board.name or "") for board in machine.gpus.boards):
        return
    active = [port for port in _verbs_ports(network) if port.state == "ACTIVE"]
    if not active:
        return
    roce = all(port.link_layer == "Ethernet" for port in active)
    severity = Severity.INFO if nodes(machine) == 1 or (roce and not several_nodes(machine)) else None
    if (environment.get("NCCL_NET_GDR_LEVEL") or "").upper() in {"LOC", "0"}:
        yield value(environment, "NCCL_NET_GDR_LEVEL", "unset: NCCL chooses by topology", severity)
    setting = environment.get("NCCL_DMABUF_ENABLE")
    dmabuf = False if setting is not None and number(setting) == 0 else network.dmabuf
    if network.peermem_loaded is False and dmabuf is False:
        yield Evidence(
            what="GPUDirect RDMA",
            seen="nvidia_peermem not loaded, no DMA-BUF",
            wanted="one of them",
            severity=severity,
        )


@rule(
    "NCC012",
    "no-rdma",
    Severity.WARNING,
    why="gradients of several nodes go over TCP, which one GPU's traffic is enough to fill",
    fix=Fix("use nodes with InfiniBand, RoCE or EFA, or pass their devices into the container"),
    confirm="ls /sys/class/infiniband",
    source="NVIDIA NCCL user guide, Networking",
    because=("CTR005",),
)
def no_rdma(machine: Snapshot) -> Iterator[Evidence]:
    """A job of several nodes on a node without any RDMA device.

    Silent for jobs of one node, where NCCL's `NET/IB : No device found` is normal, without GPUs, and where a network
    plugin such as GPUDirect-TCPX does the work.
    """
    yield from nccl_log.without_rdma(machine)
    if machine.network is None or machine.network.rdma_ports != () or not several_nodes(machine):
        return
    if without_gpus(machine) or _uses_plugin(machine.environment or Environment()):
        return
    yield Evidence(
        what="RDMA devices", seen=f"none, for {nodes(machine)} nodes", wanted="one or more", confidence="likely"
    )


@rule(
    "NCC018",
    "loopback-interface",
    Severity.ERROR,
    why="over loopback a rank reaches only its own node, so ranks of different nodes never meet",
    fix=Fix("name the interface that leads to the other nodes", "unset NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME"),
    confirm="echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME; ip -brief address",
    source="NVIDIA NCCL user guide, NCCL_SOCKET_IFNAME; PyTorch documentation, torch.distributed",
)
def loopback_interface(machine: Snapshot) -> Iterator[Evidence]:
    """A job of several nodes that meets over loopback: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME leaves no other
    interface, or NCCL's log says so.

    Silent for jobs of one node, where loopback is fine.
    """
    yield from nccl_log.loopback(machine)
    if machine.environment is None or not several_nodes(machine):
        return
    loopback = Interface(name="lo", loopback=True)
    interfaces = (machine.network.interfaces if machine.network else None) or (loopback,)
    for name, chosen in _chosen(machine.environment, interfaces).items():
        excludes = (machine.environment.get(name) or "").startswith("^")
        if chosen and all(interface.loopback for interface in chosen) and not (excludes and len(interfaces) == 1):
            yield value(machine.environment, name, "an interface that leads to the other nodes")
