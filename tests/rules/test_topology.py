"""Rules on NVLink, peer access, and where boards and processes sit."""

from itertools import combinations

import msgspec
import pytest

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.topology import GpuPair, NvLink, Topology
from gpudoctor.findings import Severity, diagnose
from gpudoctor.rules.topology import (
    RULES,
    gpus_across_numa,
    nvlink_errors,
    nvlink_inactive,
    p2p_unavailable,
    pcie_only,
    peer_islands,
    wrong_numa_cpus,
)
from gpudoctor.snapshot import Snapshot

METAL, GUEST = Host(virtual_machine=False), Host(virtual_machine=True)
H100, A6000, V100 = "NVIDIA H100 80GB HBM3", "NVIDIA RTX A6000", "Tesla V100-SXM2-16GB"


def _links(gpu: int, up: int, listed: int) -> tuple[NvLink, ...]:
    return tuple(NvLink(gpu=gpu, link=link, active=link < up) for link in range(listed))


def _machine(name: str, *up: int, listed: int = 18, host: Host | None = METAL) -> Snapshot:
    """Boards of a model, each with so many links up."""
    return Snapshot(
        host=host,
        gpus=Gpus(boards=tuple(Gpu(index=index, name=name) for index in range(len(up)))),
        topology=Topology(nvlinks=tuple(link for gpu, count in enumerate(up) for link in _links(gpu, count, listed))),
    )


def _paths(*paths: str, **fields: object) -> Snapshot:
    """Boards with these paths: 0–1, 0–2, …, 1–2, …"""
    count = next(number for number in range(2, 20) if number * (number - 1) // 2 == len(paths))
    pairs = tuple(
        GpuPair(first=first, second=second, path=path)
        for (first, second), path in zip(combinations(range(count), 2), paths, strict=True)
    )
    boards = tuple(Gpu(index=index) for index in range(count))
    return Snapshot(gpus=Gpus(boards=boards), topology=Topology(pairs=pairs), **fields)  # type: ignore[arg-type]


# NVL001


def test_links_down_where_the_model_has_them_are_an_error() -> None:
    (found,) = nvlink_inactive.judge(_machine(H100, 18, 16))
    assert (found.where, found.seen, found.wanted) == ("GPU 1", "16", "18")
    assert (found.severity, found.confidence) == (None, "certain")
    assert len(list(nvlink_inactive.judge(_machine(H100, 0, 0)))) == 2


def test_links_down_where_a_peer_has_them_are_likely_a_fault_of_the_bridge() -> None:
    (found,) = nvlink_inactive.judge(_machine("NVIDIA A100 80GB PCIe", 12, 8, listed=12))
    assert (found.where, found.wanted, found.confidence) == ("GPU 1", "12", "likely")


def test_boards_without_a_bridge_are_an_info() -> None:
    (found,) = nvlink_inactive.judge(_machine(A6000, 0, 0, listed=4))
    assert (found.where, found.severity) == ("GPU 0, 1", Severity.INFO)


def test_nvlink_inactive_is_quiet_where_nothing_is_missing() -> None:
    assert list(nvlink_inactive.judge(_machine(H100, 18, 18))) == []
    # A bridge that does not use all the links that the chip has.
    assert list(nvlink_inactive.judge(_machine("NVIDIA H100 PCIe", 12, 12))) == []
    assert list(nvlink_inactive.judge(_machine(H100, 0))) == []
    assert list(nvlink_inactive.judge(_machine("NVIDIA GeForce RTX 4090", 0, 0, listed=0))) == []


def test_nvlink_inactive_is_quiet_about_links_to_boards_of_others() -> None:
    assert list(nvlink_inactive.judge(_machine(V100, 4, 4, 4, 4, listed=6, host=GUEST))) == []
    assert list(nvlink_inactive.judge(_machine(H100, 0, 0, host=GUEST))) == []
    assert list(nvlink_inactive.judge(_machine(H100, 0, 0, host=None))) == []


def test_nvlink_inactive_is_quiet_about_sliced_and_lost_boards() -> None:
    machine = _machine(H100, 18, 0)
    for fields in ({"mig_mode": True}, {"lost": True}):
        boards = (machine.gpus.boards[0], msgspec.structs.replace(machine.gpus.boards[1], **fields))  # type: ignore[union-attr]
        assert list(nvlink_inactive.judge(msgspec.structs.replace(machine, gpus=Gpus(boards=boards)))) == []


# NVL002


def test_replays_and_recoveries_are_told_once_a_board() -> None:
    links = (
        NvLink(gpu=0, link=0, active=True, crc_errors=900, replay_errors=0, recovery_errors=0),
        NvLink(gpu=1, link=3, active=True, replay_errors=12, recovery_errors=1),
        NvLink(gpu=1, link=5, active=True, replay_errors=2),
        NvLink(gpu=2, link=0, active=True),
    )
    (found,) = nvlink_errors.judge(Snapshot(topology=Topology(nvlinks=links)))
    assert (found.where, found.seen) == ("GPU 1", "link 3: 12 replay, 1 recovery; link 5: 2 replay")


# NVL003, NVL004


def test_gpus_on_two_processors_without_nvlink() -> None:
    machine = _paths("PXB", "SYS", "SYS", "SYS", "SYS", "PIX")
    (found,) = gpus_across_numa.judge(machine)
    assert (found.where, found.severity) == ("GPU 0–2, 0–3, 1–2, 1–3", None)
    assert len(list(pcie_only.judge(machine))) == 1


def test_bridged_pairs_still_cross_the_processors() -> None:
    machine = _paths("NV12", "SYS", "SYS", "SYS", "SYS", "NV12")
    assert len(list(gpus_across_numa.judge(machine))) == 1
    assert list(pcie_only.judge(machine)) == []


def test_nvlink_everywhere_is_neither() -> None:
    machine = _paths("NV18", "NV18", "NV18")
    assert list(gpus_across_numa.judge(machine)) == []
    assert list(pcie_only.judge(machine)) == []


def test_nvlink_that_only_the_driver_tells_of_counts() -> None:
    machine = _paths("SYS")
    pair = GpuPair(first=0, second=1, path="SYS", nvlink=True)
    linked = msgspec.structs.replace(machine, topology=Topology(pairs=(pair,)))
    assert list(gpus_across_numa.judge(linked)) == []
    assert list(pcie_only.judge(linked)) == []


def test_one_numa_node_cannot_be_crossed_and_a_virtual_machine_may_invent_them() -> None:
    assert list(gpus_across_numa.judge(_paths("SYS", cpu=Cpu(numa_nodes=1)))) == []
    (found,) = gpus_across_numa.judge(_paths("SYS", host=GUEST))
    assert found.confidence == "likely"


def test_only_the_gpus_of_the_job_are_judged() -> None:
    environment = Environment(variables={"CUDA_VISIBLE_DEVICES": "0,1"})
    machine = _paths("PIX", "SYS", "SYS", "SYS", "SYS", "PIX", environment=environment)
    assert list(gpus_across_numa.judge(machine)) == []


def test_an_unknown_path_is_not_called_pcie() -> None:
    machine = msgspec.structs.replace(_paths("PIX"), topology=Topology(pairs=(GpuPair(first=0, second=1),)))
    assert list(pcie_only.judge(machine)) == []
    assert list(pcie_only.judge(Snapshot(topology=Topology(pairs=())))) == []


# NVL005


def _bound(affinity: range, nodes: int | None = 2, **variables: str) -> list[str]:
    boards = (Gpu(index=0, cpu_affinity=tuple(range(8))), Gpu(index=1, cpu_affinity=tuple(range(8, 16))))
    machine = Snapshot(
        gpus=Gpus(boards=boards),
        cpu=Cpu(affinity=tuple(affinity), numa_nodes=nodes),
        environment=Environment(variables=variables),
    )
    return [found.wanted for found in wrong_numa_cpus.judge(machine)]


def test_a_rank_on_the_cpus_of_the_other_processor_is_told() -> None:
    assert _bound(range(8), LOCAL_RANK="1") == ["near GPU 1: 8-15"]
    assert _bound(range(8), CUDA_VISIBLE_DEVICES="1", LOCAL_RANK="1") == ["near GPU 1: 8-15"]
    assert _bound(range(16, 20)) == ["near GPU 0: 0-7"]


def test_a_process_near_a_gpu_it_may_use_is_fine() -> None:
    assert _bound(range(8)) == []
    assert _bound(range(8), LOCAL_RANK="0") == []
    assert _bound(range(4, 12), LOCAL_RANK="1") == []
    assert _bound(range(8), nodes=1, LOCAL_RANK="1") == []
    assert _bound(range(8), nodes=None, LOCAL_RANK="1") == []
    assert _bound(range(8), LOCAL_RANK="7") == []


# NVL006, NVL008


def _access(*allowed: bool | None, path: str = "NV4") -> Snapshot:
    machine = _paths(*(path,) * len(allowed))
    pairs = machine.topology.pairs if machine.topology else None
    told = tuple(
        msgspec.structs.replace(pair, peer_access=access, peer_status=None if access else "not_supported")
        for pair, access in zip(pairs or (), allowed, strict=True)
    )
    return msgspec.structs.replace(machine, topology=Topology(pairs=told))


def test_nvlink_without_peer_access_is_told() -> None:
    (found,) = p2p_unavailable.judge(_access(False))
    assert (found.where, found.seen) == ("GPU 0–1", "not supported")
    assert list(p2p_unavailable.judge(_access(False, path="PHB"))) == []
    assert list(p2p_unavailable.judge(_access(True, None, True))) == []


def test_mig_has_no_peer_access_to_miss() -> None:
    sliced = Gpus(boards=(Gpu(index=0, mig_mode=True), Gpu(index=1)))
    assert list(p2p_unavailable.judge(msgspec.structs.replace(_access(False), gpus=sliced))) == []


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        ((True, False, False, False, False, True), ["GPU 0, 1 | 2, 3"]),
        ((True,) * 6, []),
        ((False,) * 6, []),
        ((True, False, False, None, False, True), []),
    ],
)
def test_islands_of_peer_access(allowed: tuple[bool | None, ...], seen: list[str]) -> None:
    assert [found.seen for found in peer_islands.judge(_access(*allowed, path="SYS"))] == seen


def test_a_matrix_of_a_paste_without_boards_is_judged() -> None:
    machine = msgspec.structs.replace(_access(True, False, False, False, False, True, path="SYS"), gpus=None)
    assert {finding.code for finding in diagnose(machine, RULES).findings} == {"NVL003", "NVL004", "NVL008"}
