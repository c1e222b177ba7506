"""Rules on NCCL's log: what is wrong with a job, and what is normal in such a log."""

import pytest

from gpudoctor.facts.nccl_log import DuplicateGpu, Mismatch, NcclLog, Timeout
from gpudoctor.facts.topology import GpuPair, Topology
from gpudoctor.findings import diagnose
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.rules.nccl import duplicate_gpu
from gpudoctor.rules.nccl_log import collective_timeout, mismatched_collective, mixed_nccl, nvls_fails, p2p_hang
from gpudoctor.rules.nccl_network import loopback_interface, no_rdma
from gpudoctor.snapshot import Snapshot


def _machine(**fields: object) -> Snapshot:
    return Snapshot(nccl_log=NcclLog(**fields))  # type: ignore[arg-type]


def _codes(machine: Snapshot) -> set[str]:
    return {finding.code for finding in diagnose(machine, MACHINE_RULES).findings}


def test_mixed_nccl_speaks_of_different_versions_on_two_nodes() -> None:
    (found,) = mixed_nccl.judge(_machine(versions={"a": "2.19.3+cuda12.3", "b": "2.21.5+cuda12.4"}))
    assert (found.seen, found.confidence) == ("2.19.3+cuda12.3 on a, 2.21.5+cuda12.4 on b", "likely")


def test_mixed_nccl_is_certain_in_nccls_own_words() -> None:
    words = "Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703"
    (found,) = mixed_nccl.judge(_machine(version_clash=words))
    assert found.confidence == "certain"


@pytest.mark.parametrize(
    "versions",
    [{}, {"a": "2.19.3"}, {"a": "2.19.3+cuda12.3", "b": "2.19.3+cuda12.1", "rank 3": "2.19.3"}],
)
def test_mixed_nccl_is_quiet_where_versions_agree(versions: dict[str, str]) -> None:
    assert list(mixed_nccl.judge(_machine(versions=versions))) == []


def test_nvls_fails_speaks_of_an_error_and_not_of_hardware_without_it() -> None:
    assert len(list(nvls_fails.judge(_machine(nvls=True, nvls_error="transport/nvls.cc:254 Cuda failure 401")))) == 1
    assert list(nvls_fails.judge(_machine(nvls=False))) == []


def test_collective_timeout_names_ranks_collective_and_who_did_not_come() -> None:
    timeouts = (
        Timeout(rank=7, sequence=12, operation="ALLREDUCE", timeout_ms=600000, last_enqueued=14),
        Timeout(rank=3, sequence=12, operation="ALLREDUCE", timeout_ms=600000, last_enqueued=14),
    )
    (found,) = collective_timeout.judge(_machine(timeouts=timeouts, late_ranks=(5,)))
    assert (found.what, found.seen) == ("ALLREDUCE number 12", "ranks 3, 7 waited 600 s; rank 5 did not come")


def test_a_timeout_follows_from_a_mismatch() -> None:
    timeouts = (Timeout(rank=0, sequence=3, operation="ALLREDUCE"),)
    assert _codes(_machine(timeouts=timeouts)) == {"NCC015"}
    assert _codes(_machine(timeouts=timeouts, mismatches=(Mismatch(seen="number 3: …"),))) == {"NCC016"}


def test_mismatched_collective_is_likely_where_it_is_a_conclusion() -> None:
    (found,) = mismatched_collective.judge(_machine(mismatches=(Mismatch(seen="a message …", certain=False),)))
    assert found.confidence == "likely"


P2P = {"channels": {"P2P": 4}, "timeouts": (Timeout(rank=0, sequence=1, operation="ALLREDUCE"),), "node_count": 1}


def test_p2p_hang_speaks_where_the_first_collective_over_pcie_never_ends() -> None:
    assert len(list(p2p_hang.judge(_machine(**P2P)))) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"timeouts": ()},
        {"timeouts": (Timeout(rank=0, sequence=900, operation="ALLREDUCE"),)},
        {"channels": {"SHM": 4}},
        {"node_count": 2},
        {"late_ranks": (1,)},
    ],
)
def test_p2p_hang_is_quiet_where_something_else_explains_it(changed: dict[str, object]) -> None:
    assert list(p2p_hang.judge(_machine(**{**P2P, **changed}))) == []


def test_p2p_hang_is_quiet_with_nvlink() -> None:
    log = NcclLog(**P2P)  # type: ignore[arg-type]
    topology = Topology(pairs=(GpuPair(first=0, second=1, path="NV4"),))
    assert list(p2p_hang.judge(Snapshot(nccl_log=log, topology=topology))) == []


def test_duplicate_gpu_speaks_in_nccls_words() -> None:
    (found,) = duplicate_gpu.judge(_machine(duplicates=(DuplicateGpu(ranks=(0, 1), device="2000"),)))
    assert (found.where, found.what) == ("ranks 0 and 1", "CUDA device 2000")


def test_loopback_is_an_error_between_nodes_alone() -> None:
    assert len(list(loopback_interface.judge(_machine(bootstrap_interfaces=("lo",), node_count=2)))) == 1
    assert list(loopback_interface.judge(_machine(bootstrap_interfaces=("lo",), node_count=1))) == []
    assert list(loopback_interface.judge(_machine(bootstrap_interfaces=("eth0",), node_count=2))) == []


def test_no_device_found_matters_between_nodes_alone() -> None:
    sockets = {"ib_devices": (), "network": "Socket", "socket_interfaces": ("eth0",)}
    assert len(list(no_rdma.judge(_machine(**sockets, node_count=2)))) == 1
    assert list(no_rdma.judge(_machine(**sockets, node_count=1))) == []
    assert list(no_rdma.judge(_machine(**{**sockets, "ib_devices": None}, node_count=2))) == []
