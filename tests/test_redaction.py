"""Secrets planted everywhere, none of them found again."""

import re

import msgspec
import pytest

from gpudoctor.facts.disks import Disks, Folder
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.exposure import Exposure, Notebook
from gpudoctor.facts.gpu import GpuProcess, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog, XidEvent
from gpudoctor.facts.libraries import Libraries, SystemLibrary
from gpudoctor.facts.network import Interface, Network
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.run import Rank
from gpudoctor.facts.torch import LoadedVersion, TorchBuild, TorchRuntime
from gpudoctor.redaction import redacted
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

UUIDS = ("GPU-a1b2c3d4-1111-2222-3333-444455556666", "GPU-a1b2ffff-1111-2222-3333-444455556667")
PLANTED = {
    "host": "trainer7.corp.example.org",
    "short host": "trainer7",
    "another host": "store9",
    "node list": "rack[3-9]",
    "user": "alice",
    "another user": "bob.smith",
    "user of the process": "carol",
    "uuid": UUIDS[0][4:],
    "another uuid": UUIDS[1][4:],
    "abbreviated uuid": "a1b2c3d4",
    "serial": "1650123456789",
    "address": "10.20.30.41",
    "another address": "172.16.5.9",
    "address 6": "fd00:1234:5678::9",
    "mac": "aa:bb:cc:dd:ee:0f",
    "guid": "9c63:c003:0012:ab34",
    "mail": "alice.jones@corp.example.org",
    "password": "hunter2hunter",
    "token": "0123456789abcdef0123456789abcdef01234567",
    "hugging face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "amazon": "AKIAIOSFODNN7EXAMPLE",
    "amazon's secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "open ai": "sk-proj-abcDEF1234567890abcDEF",
    "base 64": "Zm9vYmFyMTIzNDU2Nzg5MFF3ZXJ0eVVpT3A0NTY3ODk=",
}


@pytest.fixture
def machine(healthy: Snapshot) -> Snapshot:
    """The healthy one with names and secrets in every corner."""
    assert healthy.gpus is not None
    first, second, *others = healthy.gpus.boards
    # These two look like nothing of the kind where they stand alone.
    everything = " ".join(PLANTED[name] for name in PLANTED if name not in {"password", "abbreviated uuid"})
    return msgspec.structs.replace(
        healthy,
        host=Host(name=PLANTED["host"], system="Linux", kernel="6.8.0-45-generic"),
        gpus=Gpus(
            boards=(
                msgspec.structs.replace(
                    first,
                    uuid=UUIDS[0],
                    serial=PLANTED["serial"],
                    processes=(GpuProcess(pid=7, name="/home/alice/env/bin/python"),),
                ),
                msgspec.structs.replace(second, uuid=UUIDS[1]),
                *others,
            )
        ),
        torch=TorchBuild(installed=True, path="/home/bob.smith/env/torch", python="/Users/alice/bin/python"),
        torch_runtime=TorchRuntime(
            stage="done",
            error=f"RuntimeError on {PLANTED['short host']}: password=hunter2hunter token: {PLANTED['token']}",
            traceback=f'File "/home/carol/train.py"\n{everything}',
            libraries=(LoadedVersion(name="cublas", loaded="13.1.0.3", path="/opt/libcublas.so.13.1.0.3"),),
        ),
        packages=Packages(
            installed=(
                Package(
                    name="flash-attn",
                    version="2.8.0.1",
                    import_error="undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_str",
                ),
            )
        ),
        libraries=Libraries(system=(SystemLibrary(library="nccl", path="/data/alice/libnccl.so.2.28.9"),)),
        disks=Disks(
            folders=(Folder(role="checkpoint", path="/data/carol/ckpt", device="store9:/export", mount_point="/data"),)
        ),
        environment=Environment(
            variables={
                "CUDA_VISIBLE_DEVICES": f"{UUIDS[0][:12]},{UUIDS[1]}",
                "MASTER_ADDR": PLANTED["host"],
                "SLURM_JOB_NODELIST": PLANTED["node list"],
                "SLURM_JOB_USER": "alice",
                "NCCL_SECRET_TOKEN": "short",
                "TORCH_HOME": f"https://alice:hunter2hunter@{PLANTED['another address']}/x",
                "TORCH_LOGS": everything,
                "NCCL_SOCKET_IFNAME": "eth0",
            }
        ),
        network=Network(
            host_name=PLANTED["host"],
            host_addresses=(PLANTED["address"],),
            interfaces=(
                Interface(name="lo", addresses=("127.0.0.1", "::1")),
                Interface(name="eth0", addresses=(PLANTED["address"], PLANTED["address 6"])),
            ),
            master_error=f"{PLANTED['host']}: no answer from {PLANTED['mac']} ({PLANTED['guid']})",
        ),
        exposure=Exposure(notebooks=(Notebook(address="0.0.0.0", port=8888),)),
        kernel_log=KernelLog(
            xids=(XidEvent(xid=79, pci_bus_id="0000:0f:00", text=f"GPU {UUIDS[0]} has fallen, told alice"),),
            oom_kills=(f"{PLANTED['short host']} kernel: Killed process 12 (python) of {PLANTED['mail']}",),
        ),
        unread={"shm": f"PermissionError: /home/alice/{PLANTED['token']}"},
    )


def test_nothing_planted_is_left(machine: Snapshot) -> None:
    text = redacted(machine, machine, users=["carol"]).to_json().decode()
    assert {name for name, secret in PLANTED.items() if re.search(rf"(?<!\w){re.escape(secret)}", text)} == set()
    assert "short" not in text


def test_what_reports_and_rules_need_is_left(machine: Snapshot) -> None:
    told = redacted(machine, machine, users=["carol"])
    assert told.host is not None
    assert told.host.kernel == "6.8.0-45-generic"
    assert told.network is not None
    assert told.network.interfaces is not None
    assert told.network.interfaces[0].addresses == ("127.0.0.1", "::1")
    assert told.exposure == machine.exposure
    assert told.kernel_log is not None
    assert told.kernel_log.xids[0].pci_bus_id == "0000:0f:00"
    assert told.torch_runtime is not None
    assert told.torch_runtime.libraries == machine.torch_runtime.libraries if machine.torch_runtime else False
    assert told.packages == machine.packages
    assert told.environment is not None
    assert told.environment.variables["NCCL_SOCKET_IFNAME"] == "eth0"


def test_what_was_equal_stays_equal(machine: Snapshot) -> None:
    told = redacted(machine, machine, users=["carol"])
    assert told.host is not None
    assert told.network is not None
    assert told.environment is not None
    assert told.gpus is not None
    assert told.host.name == told.network.host_name == told.environment.variables["MASTER_ADDR"] == "host1"
    first, second = (board.uuid or "" for board in told.gpus.boards[:2])
    assert told.environment.variables["CUDA_VISIBLE_DEVICES"] == f"{first[:12]},{second}"
    assert first[:12] != second[:12]
    assert told.kernel_log is not None
    assert first in (told.kernel_log.xids[0].text or "")
    assert told.network.host_addresses is not None
    assert told.network.interfaces is not None
    assert told.network.host_addresses[0] == told.network.interfaces[1].addresses[0]
    assert told.network.host_addresses[0].startswith("192.0.2.")


def test_redaction_of_the_redacted_changes_nothing(machine: Snapshot) -> None:
    once = redacted(machine, machine, users=["carol"])
    assert redacted(once, once) == once


def test_a_machine_without_names_stays_as_it_is() -> None:
    for machine in (Snapshot(), Snapshot(host=Host(name="localhost")), Snapshot(environment=Environment())):
        assert redacted(machine, machine) == machine


def test_the_healthy_machine_loses_its_names_alone(healthy: Snapshot) -> None:
    before, after = healthy.to_json().decode(), redacted(healthy, healthy).to_json().decode()
    after = after.replace("host1", "node1").replace("192.0.2.1", "10.0.0.1")
    uuid = re.compile(r"GPU-[0-9a-f-]{36}")
    assert uuid.sub("", after) == uuid.sub("", before)


def test_root_and_words_that_settings_need_are_no_users() -> None:
    machine = Snapshot(
        torch=TorchBuild(installed=True, build="cuda", path="/home/cuda/torch", python="/root/bin/python"),
        environment=Environment(variables={"SLURM_JOB_USER": "root"}),
    )
    told = redacted(machine, machine)
    assert told.torch is not None
    assert (told.torch.build, told.torch.path, told.torch.python) == ("cuda", "/home/user1/torch", "/root/bin/python")


def test_the_hosts_of_all_ranks_are_hidden(healthy: Snapshot) -> None:
    ranks = tuple(Rank(rank=number, host=f"gpu-box-{number}") for number in range(3))
    run = Run(ranks=ranks, command=("torchrun", "--rdzv-endpoint=gpu-box-0:29500"), machine=healthy)
    told = redacted(run, healthy)
    assert [rank.host for rank in told.ranks] == ["host2", "host3", "host4"]
    assert told.command == ("torchrun", "--rdzv-endpoint=host2:29500")
    assert b"gpu-box" not in told.to_json()


def test_versions_of_four_parts_are_no_addresses(healthy: Snapshot) -> None:
    pinned = TorchBuild(version="2.11.0+cu130", pins={"cudnn": "9.19.0.56", "cublas": "13.1.0.3"})
    machine = msgspec.structs.replace(healthy, torch=pinned)
    assert redacted(machine, machine).torch == pinned
