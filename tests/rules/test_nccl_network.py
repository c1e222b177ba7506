"""What NCCL and gloo will find of a network."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.network import Interface, Network, RdmaPort
from gpudoctor.findings import Severity
from gpudoctor.rules.nccl_network import (
    fits,
    ib_disabled,
    ib_port_down,
    loopback_interface,
    no_gpudirect,
    no_rdma,
    no_such_interface,
)
from gpudoctor.snapshot import Snapshot

LO = Interface(name="lo", up=True, loopback=True)
ETH0 = Interface(name="eth0", up=True, loopback=False)
IB0 = Interface(name="ib0", up=False, loopback=False)
EIGHT = Gpus(boards=tuple(Gpu(index=index, name="H100") for index in range(8)))


def _port(number: int = 0, state: str = "ACTIVE", layer: str = "InfiniBand", physical: str | None = None) -> RdmaPort:
    return RdmaPort(device=f"mlx5_{number}", port=1, state=state, link_layer=layer, physical_state=physical)


def _machine(network: Network, nodes: Any = None, **variables: str) -> Snapshot:
    return Snapshot(
        gpus=EIGHT, network=network, environment=Environment(variables=variables), expected=Expected(nodes=nodes)
    )


def test_ib_disabled_speaks_where_ports_are_up() -> None:
    (found,) = ib_disabled.judge(_machine(Network(rdma_ports=(_port(),)), NCCL_IB_DISABLE="1"))
    assert found.severity is None


def test_ib_disabled_is_an_info_on_one_node() -> None:
    (found,) = ib_disabled.judge(_machine(Network(rdma_ports=(_port(),)), nodes=1, NCCL_IB_DISABLE="1"))
    assert found.severity is Severity.INFO


@pytest.mark.parametrize("ports", [None, (), (_port(state="DOWN"),), (_port(layer="Unspecified"),)])
def test_ib_disabled_is_quiet_without_ports_it_could_use(ports: tuple[RdmaPort, ...] | None) -> None:
    assert list(ib_disabled.judge(_machine(Network(rdma_ports=ports), NCCL_IB_DISABLE="1"))) == []


def test_ib_disabled_is_quiet_with_a_plugin_and_when_unset() -> None:
    ports = Network(rdma_ports=(_port(),))
    assert list(ib_disabled.judge(_machine(ports, NCCL_IB_DISABLE="1", NCCL_NET="FasTrak"))) == []
    assert list(ib_disabled.judge(_machine(ports, NCCL_IB_DISABLE="0"))) == []


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("eth", "eth0", True),
        ("=eth", "eth0", False),
        ("=eth0,eth1", "eth1", True),
        ("^docker,lo", "lo", False),
        ("^docker", "eth0", True),
        ("^=docker0", "docker01", True),
        ("mlx5_3:1", "mlx5_3", True),
    ],
)
def test_names_fit_as_nccl_reads_them(pattern: str, name: str, expected: bool) -> None:
    assert fits(pattern, name) is expected


@pytest.mark.parametrize(
    "setting",
    [
        {"NCCL_SOCKET_IFNAME": "ens"},
        {"NCCL_SOCKET_IFNAME": "=eth"},
        {"NCCL_SOCKET_IFNAME": "^eth,ib,lo"},
        {"NCCL_SOCKET_IFNAME": "ib0"},
        {"GLOO_SOCKET_IFNAME": "eth"},
        {"GLOO_SOCKET_IFNAME": "eth0,eth1"},
    ],
)
def test_an_interface_that_is_not_there_or_down_is_an_error(setting: dict[str, str]) -> None:
    (found,) = no_such_interface.judge(_machine(Network(interfaces=(LO, ETH0, IB0)), **setting))
    assert "eth0" in found.wanted


def test_an_interface_that_is_there_is_none() -> None:
    network = Network(interfaces=(LO, ETH0, IB0))
    for setting in ({"NCCL_SOCKET_IFNAME": "eth,ens"}, {"GLOO_SOCKET_IFNAME": "eth0"}, {"NCCL_SOCKET_IFNAME": ""}):
        assert list(no_such_interface.judge(_machine(network, **setting))) == []
    assert list(no_such_interface.judge(_machine(Network(), NCCL_SOCKET_IFNAME="ens"))) == []


def test_a_login_node_without_gpus_may_lack_ncccls_interface() -> None:
    machine = _machine(Network(interfaces=(LO, ETH0)), NCCL_SOCKET_IFNAME="ib0")
    (found,) = no_such_interface.judge(msgspec.structs.replace(machine, gpus=Gpus(boards=())))
    assert (found.severity, found.confidence) == (Severity.WARNING, "likely")


def test_a_port_without_a_subnet_manager_is_down() -> None:
    (found,) = ib_port_down.judge(_machine(Network(rdma_ports=(_port(), _port(1, "INIT", physical="LinkUp")))))
    assert (found.where, found.seen, found.severity) == ("mlx5_1 port 1", "INIT, LinkUp", None)


def test_the_one_port_missing_of_a_full_set_is_down() -> None:
    ports = (*(_port(number) for number in range(7)), _port(7, "DOWN", physical="Polling"))
    (found,) = ib_port_down.judge(_machine(Network(rdma_ports=ports)))
    assert (found.where, found.severity) == ("mlx5_7 port 1", None)


def test_a_port_the_job_names_is_down_whatever_its_kind() -> None:
    ports = (_port(), _port(1, "DOWN", "Ethernet"))
    (found,) = ib_port_down.judge(_machine(Network(rdma_ports=ports), NCCL_IB_HCA="=mlx5_1:1"))
    assert found.severity is None


def test_an_unused_second_port_is_an_info() -> None:
    (found,) = ib_port_down.judge(_machine(Network(rdma_ports=(_port(), _port(1, "DOWN", physical="Polling")))))
    assert (found.severity, found.confidence) == (Severity.INFO, "likely")


def test_ports_that_are_switched_off_or_ethernet_say_nothing() -> None:
    ports = (
        _port(),
        _port(1, "DOWN", physical="Disabled"),
        _port(2, "DOWN", "Ethernet"),
        _port(3, "DOWN", "Unspecified"),
    )
    assert list(ib_port_down.judge(_machine(Network(rdma_ports=ports)))) == []
    assert list(ib_port_down.judge(_machine(Network()))) == []


NO_DIRECT = Network(rdma_ports=(_port(),), peermem_loaded=False, dmabuf=False)


def test_no_gpudirect_speaks_without_module_and_dmabuf() -> None:
    (found,) = no_gpudirect.judge(_machine(NO_DIRECT))
    assert found.severity is None


def test_no_gpudirect_speaks_where_a_variable_switches_it_off() -> None:
    working = msgspec.structs.replace(NO_DIRECT, dmabuf=True)
    assert list(no_gpudirect.judge(_machine(working))) == []
    assert len(list(no_gpudirect.judge(_machine(working, NCCL_DMABUF_ENABLE="0")))) == 1
    assert len(list(no_gpudirect.judge(_machine(working, NCCL_NET_GDR_LEVEL="LOC")))) == 1


def test_no_gpudirect_is_an_info_on_one_node_and_with_roce_of_unknown_use() -> None:
    roce = msgspec.structs.replace(NO_DIRECT, rdma_ports=(_port(layer="Ethernet"),))
    for machine in (_machine(NO_DIRECT, nodes=1), _machine(roce)):
        assert [found.severity for found in no_gpudirect.judge(machine)] == [Severity.INFO]
    assert [found.severity for found in no_gpudirect.judge(_machine(roce, nodes=2))] == [None]


def test_no_gpudirect_is_quiet_for_geforce_and_where_facts_are_missing() -> None:
    geforce = msgspec.structs.replace(
        _machine(NO_DIRECT), gpus=Gpus(boards=(Gpu(index=0, name="NVIDIA GeForce RTX 4090"),))
    )
    assert list(no_gpudirect.judge(geforce)) == []
    assert list(no_gpudirect.judge(_machine(msgspec.structs.replace(NO_DIRECT, dmabuf=None)))) == []
    assert list(no_gpudirect.judge(_machine(msgspec.structs.replace(NO_DIRECT, rdma_ports=())))) == []


def test_no_rdma_speaks_for_several_nodes() -> None:
    (found,) = no_rdma.judge(_machine(Network(rdma_ports=()), nodes=2))
    assert "2 nodes" in found.seen


def test_no_rdma_is_quiet_on_one_node_with_a_plugin_and_where_nothing_was_read() -> None:
    assert list(no_rdma.judge(_machine(Network(rdma_ports=())))) == []
    assert list(no_rdma.judge(_machine(Network(rdma_ports=()), nodes=2, NCCL_FASTRAK_NUM_FLOWS="2"))) == []
    assert list(no_rdma.judge(_machine(Network(), nodes=2))) == []


@pytest.mark.parametrize("setting", [{"NCCL_SOCKET_IFNAME": "lo"}, {"GLOO_SOCKET_IFNAME": "lo"}])
def test_loopback_cannot_join_several_nodes(setting: dict[str, str]) -> None:
    for network in (Network(interfaces=(LO, ETH0)), Network()):
        assert len(list(loopback_interface.judge(_machine(network, nodes=2, **setting)))) == 1
        assert list(loopback_interface.judge(_machine(network, **setting))) == []


def test_other_interfaces_may() -> None:
    for setting in ("eth0", "^lo,docker", "^docker", ""):
        for network in (Network(interfaces=(LO, ETH0)), Network()):
            assert list(loopback_interface.judge(_machine(network, nodes=2, NCCL_SOCKET_IFNAME=setting))) == []
