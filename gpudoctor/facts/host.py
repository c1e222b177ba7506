"""The machine as a whole: its names, its operating system and its kernel."""

from gpudoctor.facts.base import Subject


class Host(Subject, frozen=True, kw_only=True):
    """What `uname`, `/etc/os-release` and the hypervisor flags tell."""

    name: str | None = None
    """Host name, as `gethostname` gives it; replaced by a stand-in in what is meant for sharing."""
    system: str | None = None
    """`Linux`, `Darwin` or `Windows`."""
    kernel: str | None = None
    """Kernel release, such as `6.8.0-45-generic`."""
    machine: str | None = None
    """Instruction set, such as `x86_64` or `aarch64`."""
    distribution: str | None = None
    """PRETTY_NAME of /etc/os-release."""
    wsl: bool | None = None
    """The kernel is that of the Windows Subsystem for Linux."""
    virtual_machine: bool | None = None
    """A hypervisor runs below this kernel; ACS and IOMMU then cannot be judged from inside."""
    glibc: str | None = None
    """Version of the C library, such as `2.36`."""
