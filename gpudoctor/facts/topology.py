"""How the GPUs of a host are linked: NVLink, peer access, PCIe paths, ACS and IOMMU."""

from gpudoctor.facts.base import Fact, Subject


class NvLink(Fact, frozen=True, kw_only=True):
    """One NVLink of one board."""

    gpu: int
    link: int
    active: bool | None = None
    peer: str | None = None
    """Bus id of the far end; None for an NVSwitch."""
    peer_kind: str | None = None
    """`gpu`, `switch` or `cpu`."""
    crc_errors: int | None = None
    replay_errors: int | None = None
    recovery_errors: int | None = None


class GpuPair(Fact, frozen=True, kw_only=True):
    """The path between two boards."""

    first: int
    second: int
    path: str | None = None
    """As `nvidia-smi topo -m` prints it: `NV18`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`."""
    nvlink: bool | None = None
    """NVLink joins them, even where its links cannot be counted; None where only `path` is known."""
    peer_access: bool | None = None
    """The driver allows peer reads and writes."""
    peer_status: str | None = None
    """`ok`, `chipset_not_supported`, `topology_not_supported`, `disabled_by_regkey`, `not_supported`, …"""


class AcsBridge(Fact, frozen=True, kw_only=True):
    """A PCI bridge above a GPU whose Access Control Services send peer traffic up to the root."""

    bus_id: str
    gpus: tuple[int, ...] = ()
    """Boards below it; empty where that is not known (pasted text)."""
    port: str | None = None
    """`root` (of the root complex), or `downstream` or `upstream` of a switch; None where that is not known."""


class Topology(Subject, frozen=True, kw_only=True):
    """Empty tuples on a host with one GPU."""

    nvlinks: tuple[NvLink, ...] | None = None
    """None where the boards have no NVLink or the driver says "not supported"."""
    pairs: tuple[GpuPair, ...] | None = None
    acs_bridges: tuple[AcsBridge, ...] | None = None
    """None where the PCI configuration space is not readable (no root) or in a virtual machine."""
    iommu_mode: str | None = None
    """`off`, `passthrough` or `translate`; None where the kernel does not say."""
    nvswitches: int | None = None
    """NVSwitch devices on the PCI bus; 0 on systems without."""
