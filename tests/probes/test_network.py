"""Names, interfaces, RDMA ports and the master's port: recorded trees, and a real socket on loopback."""

import socket
import threading
from pathlib import Path

import pytest

from gpudoctor.facts.network import Interface
from gpudoctor.probes import network, resolver
from gpudoctor.probes.sockets import listeners
from gpudoctor.probes.system import NotRead, System


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


TCP = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def _node(tmp_path: Path, **more: str) -> Path:
    _write(
        tmp_path,
        {
            "/proc/sys/kernel/hostname": "node1\n",
            "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            "/proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nnvidia 56770560 1 nvidia_peermem, Live 0x0\n",
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n",
            "/proc/net/tcp": TCP
            + "   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4242 1 0 100\n"
            + "   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000  0 4243 1 0 100\n",
            "/etc/hosts": "127.0.0.1 localhost\n127.0.1.1 node1.example node1 # Debian\n10.0.0.9 head # the first\n",
            "/etc/nsswitch.conf": "hosts: files dns\n",
            "/sys/class/net/lo/flags": "0x9\n",
            "/sys/class/net/eth0/flags": "0x1003\n",
            "/sys/class/net/eth0/speed": "100000\n",
            "/sys/class/net/eth1/flags": "0x1002\n",
            "/sys/class/net/eth1/speed": "-1\n",
            "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "/sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
            "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
            **more,
        },
    )
    return tmp_path


def test_a_recorded_node_is_read_whole(tmp_path: Path) -> None:
    fact = network.read(System(root=_node(tmp_path), environ={}))
    assert fact.host_name == "node1"
    assert fact.host_addresses == ("127.0.1.1",)
    assert fact.interfaces == (
        Interface(name="eth0", up=True, loopback=False, speed_mb_s=100000),
        Interface(name="eth1", up=False, loopback=False),
        Interface(name="lo", up=True, loopback=True),
    )
    assert [(port.device, port.state, port.physical_state, port.rate) for port in fact.rdma_ports or ()] == [
        ("mlx5_0", "ACTIVE", "LinkUp", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "DOWN", None, None),
    ]
    assert (fact.peermem_loaded, fact.dmabuf, fact.master_addr, fact.unread) == (True, True, None, {})


def test_the_proprietary_module_and_an_old_kernel_have_no_dmabuf(tmp_path: Path) -> None:
    _node(tmp_path, **{"/proc/sys/kernel/osrelease": "5.4.0-200-generic"})
    assert network.read(System(root=tmp_path, environ={})).dmabuf is False
    _write(tmp_path, {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1"})
    _write(tmp_path, {"/proc/sys/kernel/osrelease": "6.8.0"})
    assert network.read(System(root=tmp_path, environ={})).dmabuf is False


def test_a_machine_without_any_of_it_gives_no_answers(tmp_path: Path) -> None:
    fact = network.read(System(root=tmp_path, environ={"MASTER_ADDR": "node7"}))
    assert (fact.host_addresses, fact.interfaces, fact.rdma_ports, fact.peermem_loaded, fact.dmabuf) == (None,) * 5
    assert fact.unread == {"master_addresses": "would need DNS"}


def test_a_kernel_without_rdma_devices_says_so(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net").mkdir(parents=True)
    assert network.read(System(root=tmp_path, environ={})).rdma_ports == ()


def test_a_host_name_only_dns_knows_is_not_called_unresolvable(tmp_path: Path) -> None:
    _node(tmp_path, **{"/etc/hosts": "127.0.0.1 localhost\n"})
    fact = network.read(System(root=tmp_path, environ={}))
    assert fact.host_addresses is None
    assert "DNS" in fact.unread["host_addresses"]


def test_a_host_name_nobody_can_resolve_is_empty(tmp_path: Path) -> None:
    _node(tmp_path, **{"/etc/hosts": "127.0.0.1 localhost\n", "/etc/nsswitch.conf": "hosts: files [NOTFOUND=return]\n"})
    assert network.read(System(root=tmp_path, environ={})).host_addresses == ()


def test_systemd_resolves_the_own_name_to_the_interfaces(tmp_path: Path) -> None:
    _write(tmp_path, {"/etc/nsswitch.conf": "hosts: mymachines myhostname dns\n"})
    own = (Interface(name="lo", addresses=("127.0.0.1",)), Interface(name="eth0", addresses=("10.0.0.1", "fe80::1")))
    assert resolver.Hosts(System(root=tmp_path), "node1", own).lookup("node1") == ("10.0.0.1",)


def test_the_masters_port_is_looked_up_where_the_master_is_this_host(tmp_path: Path) -> None:
    environ = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    (tmp_path / "proc/77/fd").mkdir(parents=True)
    (tmp_path / "proc/77/fd/3").symlink_to("socket:[4242]")
    _write(tmp_path, {"/proc/77/comm": "python\n"})
    fact = network.read(System(root=_node(tmp_path), environ=environ))
    assert (fact.master_addresses, fact.master_port, fact.master_port_in_use) == (("127.0.1.1",), 29500, True)
    assert fact.master_port_owner == "python (77)"


def test_a_connection_is_no_listener_and_another_hosts_port_is_not_judged(tmp_path: Path) -> None:
    root = _node(tmp_path)
    connected = network.read(System(root=root, environ={"MASTER_ADDR": "localhost", "MASTER_PORT": "8080"}))
    assert connected.master_port_in_use is False
    elsewhere = network.read(System(root=root, environ={"MASTER_ADDR": "head", "MASTER_PORT": "29500"}))
    assert (elsewhere.master_addresses, elsewhere.master_port_in_use) == (("10.0.0.9",), None)


def test_a_port_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    environ = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "tcp://10.0.0.1:80"}
    assert network.read(System(root=_node(tmp_path), environ=environ)).master_port is None


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_real_listener_on_loopback_is_found_and_owned(family: socket.AddressFamily, address: str) -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("no /proc/net/tcp")
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip("no such address family")
        server.listen()
        port = server.getsockname()[1]
        environ = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        assert (address, port) in {(one.address, one.port) for one in listeners(System())}
        fact = network.read(System(environ=environ))
    assert fact.master_port_in_use is True
    assert fact.master_port_owner is not None
    assert network.read(System(environ=environ)).master_port_in_use is False


def test_this_machine_has_a_loopback_interface() -> None:
    fact = network.read(System(environ={}))
    assert any(item.loopback and "127.0.0.1" in item.addresses for item in fact.interfaces or ())


def test_a_resolver_that_says_no_such_name_is_an_answer() -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert resolver.ask("node7", resolve=unknown) == ((), "Name or service not known")


def test_a_resolver_without_a_name_server_is_no_answer() -> None:
    def failing(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(NotRead, match="Temporary failure"):
        resolver.ask("node7", resolve=failing)


def test_a_silent_resolver_costs_its_deadline_alone() -> None:
    never = threading.Event()
    try:
        with pytest.raises(NotRead, match="no answer in"):
            resolver.ask("node7", deadline_s=0.01, resolve=lambda *_, **__: [never.wait()][:0])
    finally:
        never.set()


def test_a_name_too_long_for_dns_is_refused_without_a_crash() -> None:
    addresses, words = resolver.ask("x" * 300, resolve=lambda name, *_, **__: name.encode("idna"))
    assert addresses == ()
    assert words
