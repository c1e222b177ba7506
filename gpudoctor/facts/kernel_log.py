"""What the kernel log says of GPUs."""

from gpudoctor.facts.base import Fact, Subject


class XidEvent(Fact, frozen=True, kw_only=True):
    """One `NVRM: Xid` line."""

    xid: int
    pci_bus_id: str | None = None
    """As printed, without function: `0000:0f:00`."""
    text: str | None = None
    """The rest of the line."""
    age_s: float | None = None
    """How long ago; None where the log has no times."""
    pid: int | None = None
    process: str | None = None


class KernelLog(Subject, frozen=True, kw_only=True):
    """Oldest first. Lost where the ring buffer has wrapped."""

    xids: tuple[XidEvent, ...] = ()
    nvrm_errors: tuple[str, ...] = ()
    """Other decisive NVRM lines: `API mismatch`, `GPU … has fallen off the bus`, `RmInitAdapter failed`."""
    oom_kills: tuple[str, ...] = ()
    """Lines of the out-of-memory killer."""
    source: str | None = None
    """`/dev/kmsg`, `dmesg`, `journalctl` or `text`."""
