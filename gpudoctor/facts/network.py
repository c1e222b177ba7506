"""The network a job of several processes or nodes talks over."""

from gpudoctor.facts.base import Fact, Subject


class Interface(Fact, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    up: bool | None = None
    loopback: bool | None = None
    addresses: tuple[str, ...] = ()
    speed_mb_s: int | None = None
    """Link speed in megabits a second as the driver gives it; None for virtual ones."""


class RdmaPort(Fact, frozen=True, kw_only=True):
    """One port of an InfiniBand or RoCE device."""

    device: str
    port: int
    state: str | None = None
    """`ACTIVE`, `DOWN`, `INIT`, …"""
    physical_state: str | None = None
    link_layer: str | None = None
    """`InfiniBand` or `Ethernet`."""
    rate: str | None = None


class Network(Subject, frozen=True, kw_only=True):
    """Nothing here opens a connection."""

    host_name: str | None = None
    host_addresses: tuple[str, ...] | None = None
    """Addresses the host name resolves to from local files; empty where it does not resolve."""
    interfaces: tuple[Interface, ...] | None = None
    master_addr: str | None = None
    master_addresses: tuple[str, ...] | None = None
    """Addresses MASTER_ADDR resolves to; empty where it does not; None where unset or not tried."""
    master_error: str | None = None
    master_port: int | None = None
    master_port_in_use: bool | None = None
    """A socket of this host already listens there; told only where MASTER_ADDR is this host."""
    master_port_owner: str | None = None
    """Process that listens, where it may be seen."""
    rdma_ports: tuple[RdmaPort, ...] | None = None
    """Empty where the kernel lists no RDMA device."""
    peermem_loaded: bool | None = None
    """nvidia_peermem (or nv_peer_mem) is loaded."""
    dmabuf: bool | None = None
    """The open kernel module gives DMA-BUF, which makes peermem needless."""
