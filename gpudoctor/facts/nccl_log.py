"""What the log of NCCL (NCCL_DEBUG=INFO), of RCCL, or of torch's watchdog over them says of a job."""

from __future__ import annotations

from gpudoctor.facts.base import Fact, Subject


class DuplicateGpu(Fact, frozen=True, kw_only=True):
    """Two ranks on one device, as NCCL refuses it."""

    ranks: tuple[int, ...]
    device: str | None = None
    """PCI bus number as NCCL prints it, such as `2000` or `b3000`."""


class Timeout(Fact, frozen=True, kw_only=True):
    """A collective that did not end in time on one rank."""

    rank: int | None = None
    group: str | None = None
    """GUID or name of the process group; None where the version does not print it."""
    sequence: int | None = None
    """Number of the collective in its group; None where only another rank's timeout was heard of."""
    operation: str | None = None
    """As torch names it: `ALLREDUCE`, `ALLTOALL`, `BROADCAST`, …"""
    elements_in: int | None = None
    elements_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    """Numbers of that rank's newest collectives; -1 where there is none yet."""


class Mismatch(Fact, frozen=True, kw_only=True):
    """Ranks that do not agree on a collective."""

    seen: str
    """How they differ, in one line."""
    ranks: tuple[int, ...] = ()
    bytes_received: int | None = None
    bytes_expected: int | None = None
    certain: bool = True
    """The text says so itself; else it is a conclusion, or other settings on some ranks could do the same."""


class NcclLog(Subject, frozen=True, kw_only=True):
    """Of all ranks whose lines are in the text. None: the log does not say (or is of a level that does not tell)."""

    rccl: bool = False
    """AMD's library."""
    version: str | None = None
    """The first one named, as printed, such as `2.19.3+cuda12.3`."""
    versions: dict[str, str] = {}
    """By place: host, else `rank 3`, or host and process where one host has several versions."""
    version_clash: str | None = None
    """NCCL's own words on ranks of different versions."""
    hosts: tuple[str, ...] = ()
    """Names before the process numbers, in the order of the text."""
    node_count: int | None = None
    """As NCCL counts them, else the hosts seen."""
    world_size: int | None = None
    """Ranks of the largest communicator."""
    bootstrap_interfaces: tuple[str, ...] = ()
    """Interfaces the ranks meet over."""
    socket_interfaces: tuple[str, ...] = ()
    """Interfaces that data goes over where it goes over sockets."""
    no_interface: bool = False
    """NCCL found no interface to meet over."""
    network: str | None = None
    """What carries data between nodes: `Socket`, `IB`, `IBext_v8`, `AWS Libfabric`, …"""
    plugin: str | None = None
    """Network plugin that was loaded."""
    ib_devices: tuple[str, ...] | None = None
    """RDMA devices in use; empty where NCCL found none, which is normal on one node."""
    gpudirect: bool | None = None
    """Channels between nodes read and write GPU memory directly (GDRDMA)."""
    channels: dict[str, int] = {}
    """How ranks are joined: `P2P`, `SHM`, `NET` → channels of that kind."""
    nvls: bool | None = None
    """NVLink SHARP is available on the devices."""
    nvls_error: str | None = None
    """The line on which it failed."""
    wants_passthrough: bool = False
    """RCCL warns that the kernel was started without iommu=pt."""
    warnings: tuple[str, ...] = ()
    """Texts of WARN lines, each once, the first ones."""
    duplicates: tuple[DuplicateGpu, ...] = ()
    timeouts: tuple[Timeout, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    late_ranks: tuple[int, ...] = ()
    """Ranks that others name as having not come to a collective."""
