"""The PCI bus between GPUs: ACS, IOMMU, NVSwitches, on recorded trees."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.facts.topology import AcsBridge
from gpudoctor.probes import pci
from gpudoctor.probes.system import System
from tests.probes.conftest import Record

ROOT_PORT, UPSTREAM, DOWNSTREAM = 4, 5, 6
SLOTS = {0: "0000:03:00.0", 1: "0000:04:00.0"}
BARE_METAL = {"/proc/cpuinfo": "flags : fpu vme"}

Switch = Callable[..., System]


def _config(kind: int, control: int | None, size: int = 4096) -> bytes:
    """Configuration space of a bridge: PCI Express capability, then error reporting, then ACS where `control` is."""
    config = bytearray(size)
    config[0x34], config[0x40], config[0x42] = 0x40, 0x10, kind << 4 | 2
    if size > 256:
        struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | (0x148 << 20 if control is not None else 0))
        if control is not None:
            struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x1F, control)
    return bytes(config)


@pytest.fixture
def switch(record: Record) -> Switch:
    """Two boards below two downstream ports of one switch."""

    def make(root: bytes, ports: bytes, files: dict[str, str] = BARE_METAL) -> System:
        system = record(files)
        devices = system.path("/sys/bus/pci/devices")
        devices.mkdir(parents=True)
        top = system.path("/sys/devices/pci0000:00/0000:00:01.0")
        upstream = top / "0000:01:00.0"
        for folder, config in ((top, root), (upstream, _config(UPSTREAM, None))):
            folder.mkdir(parents=True)
            (folder / "config").write_bytes(config)
        for port, slot in (("0000:02:00.0", SLOTS[0]), ("0000:02:01.0", SLOTS[1])):
            (upstream / port / slot).mkdir(parents=True)
            (upstream / port / "config").write_bytes(ports)
            (devices / slot).symlink_to(os.path.relpath(upstream / port / slot, devices))
        return system

    return make


def test_downstream_ports_that_redirect_are_found_with_the_board_below(switch: Switch) -> None:
    system = switch(_config(ROOT_PORT, 0x1D), _config(DOWNSTREAM, 0x1D))
    assert pci.acs_bridges(system, SLOTS) == (
        (
            AcsBridge(bus_id="0000:02:00.0", gpus=(0,), port="downstream"),
            AcsBridge(bus_id="0000:00:01.0", gpus=(0, 1), port="root"),
            AcsBridge(bus_id="0000:02:01.0", gpus=(1,), port="downstream"),
        ),
        {},
    )


def test_validation_of_sources_alone_redirects_nothing(switch: Switch) -> None:
    system = switch(_config(ROOT_PORT, 0x01), _config(DOWNSTREAM, 0x11))
    assert pci.acs_bridges(system, SLOTS) == ((), {})


def test_bridges_without_acs_redirect_nothing(switch: Switch) -> None:
    for size in (256, 4096):
        system = switch(_config(ROOT_PORT, None), _config(DOWNSTREAM, None, size))
        assert pci.acs_bridges(system, SLOTS) == ((), {})


def test_without_root_it_is_said(switch: Switch) -> None:
    system = switch(_config(ROOT_PORT, 0x1D)[:64], _config(DOWNSTREAM, 0x1D)[:64])
    assert pci.acs_bridges(system, SLOTS) == (None, {"acs_bridges": "needs root"})


def test_a_virtual_machine_is_not_asked(switch: Switch) -> None:
    system = switch(
        _config(ROOT_PORT, 0x1D), _config(DOWNSTREAM, 0x1D), {"/proc/cpuinfo": "flags : fpu hypervisor vme"}
    )
    assert pci.acs_bridges(system, SLOTS) == (None, {})


def test_one_board_has_no_bridge_in_between_and_hidden_ones_are_unknown(record: Record) -> None:
    assert pci.acs_bridges(record({}), {0: SLOTS[0]}) == ((), {})
    assert pci.acs_bridges(record(BARE_METAL), SLOTS) == (None, {})


@pytest.mark.parametrize("config", [b"\xff" * 4096, b"\0" * 4096, bytes(range(256)) * 16])
def test_a_strange_configuration_space_ends(config: bytes) -> None:
    assert pci.acs_redirects(config) in {True, False}
    pci.port(config)


def _group(system: System, slot: str, kind: str) -> None:
    group = system.path("/sys/kernel/iommu_groups/7")
    group.mkdir(parents=True, exist_ok=True)
    (group / "type").write_text(f"{kind}\n")
    device = system.path(f"/sys/bus/pci/devices/{slot}")
    device.mkdir(parents=True)
    (device / "iommu_group").symlink_to(os.path.relpath(group, device))


@pytest.mark.parametrize(("kind", "mode"), [("DMA-FQ", "translate"), ("DMA", "translate"), ("identity", "passthrough")])
def test_the_iommu_by_the_groups_of_the_boards(record: Record, kind: str, mode: str) -> None:
    system = record({"/sys/kernel/iommu_groups/1/type": "DMA"})
    _group(system, SLOTS[0], kind)
    assert pci.iommu_mode(system, SLOTS.values()) == mode


def test_the_iommu_where_groups_tell_no_type(record: Record) -> None:
    old = {"/sys/kernel/iommu_groups/1/devices/x": ""}
    assert pci.iommu_mode(record({**old, "/proc/cmdline": "ro intel_iommu=on iommu=pt"}), ()) == "passthrough"
    assert pci.iommu_mode(record({**old, "/proc/cmdline": "ro quiet"}), ()) is None
    assert pci.iommu_mode(record({"/proc/cmdline": "ro intel_iommu=off"}), ()) == "off"


def test_no_groups_mean_no_iommu(record: Record) -> None:
    system = record({})
    assert pci.iommu_mode(system, ()) is None
    system.path("/sys/kernel/iommu_groups").mkdir(parents=True)
    assert pci.iommu_mode(system, ()) == "off"


def test_nvswitches_are_counted(record: Record, tmp_path: Path) -> None:
    def device(name: str, vendor: str, kind: str) -> dict[str, str]:
        folder = f"/sys/bus/pci/devices/{name}"
        return {f"{folder}/vendor": vendor, f"{folder}/class": kind}

    system = record(
        {
            **device("0000:05:00.0", "0x10de", "0x068000"),
            **device("0000:06:00.0", "0x10de", "0x030200"),
            **device("0000:07:00.0", "0x8086", "0x068000"),
        }
    )
    assert pci.switches(system) == 1
    assert pci.switches(System(root=tmp_path / "empty")) is None
