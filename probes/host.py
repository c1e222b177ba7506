"""Read what the machine is: names, operating system, kernel, and whether a hypervisor runs below."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress

from gpudoctor.facts.host import Host
from gpudoctor.probes.system import System

VIRTUAL_PRODUCTS = ("kvm", "qemu", "virtual", "vmware", "virtualbox", "bochs", "hvm domu", "google compute engine")
"""In DMI's product name. Amazon's bare-metal instances carry Amazon as vendor too, so the vendor alone says nothing."""


def read(system: System) -> Host:
    """Nothing here needs root."""
    # A recorded machine is always Linux.
    names = platform.uname() if system.live else None
    name = names.node if names else system.text_or_none("/proc/sys/kernel/hostname")
    kernel = names.release if names else system.text_or_none("/proc/sys/kernel/osrelease")
    kind = names.system if names else "Linux"
    linux = kind == "Linux"
    return Host(
        name=name,
        system=kind,
        kernel=kernel,
        machine=names.machine if names else None,
        distribution=_distribution(system) if linux else f"macOS {platform.mac_ver()[0]}" if kind == "Darwin" else None,
        wsl="microsoft" in (kernel or "").lower() if linux else None,
        virtual_machine=virtual_machine(system) if linux else None,
        glibc=_glibc() if system.live and linux else None,
    )


def _distribution(system: System) -> str | None:
    text = system.text_or_none("/etc/os-release") or system.text_or_none("/usr/lib/os-release") or ""
    found = re.search(r"^PRETTY_NAME=(['\"]?)(.*)\1$", text, re.MULTILINE)
    return found[2] if found else None


def virtual_machine(system: System) -> bool | None:
    """On x86 the CPU says so; elsewhere the firmware does. None where neither answers."""
    with suppress(OSError), system.path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as cpuinfo:
        # The first CPU is enough: the kernel needs a millisecond for each.
        flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read(8192), re.MULTILINE)
        if flags:
            return "hypervisor" in flags[1].split()
    if system.path("/sys/hypervisor/type").exists() or system.path("/proc/device-tree/hypervisor").exists():
        return True
    product = system.text_or_none("/sys/class/dmi/id/product_name")
    return None if product is None else any(word in product.lower() for word in VIRTUAL_PRODUCTS)


def _glibc() -> str | None:
    """None with another C library, such as musl."""
    with suppress(AttributeError, ValueError, OSError):
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return version if name == "glibc" else None
    return None
