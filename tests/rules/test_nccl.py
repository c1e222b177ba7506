"""NCCL's variables by themselves."""

from typing import Any

import pytest

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import GpuPair, Topology
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.nccl import (
    duplicate_gpu,
    nvls_disabled,
    p2p_disabled,
    renamed_variable,
    shm_disabled,
    too_many_sockets,
    unknown_variable,
)
from gpudoctor.snapshot import Snapshot

ONE, FOUR = (Gpus(boards=tuple(Gpu(index=index) for index in range(count))) for count in (1, 4))


def _found(asked: Rule[Snapshot], gpus: Any = FOUR, **variables: str) -> list[Evidence]:
    return list(asked.judge(Snapshot(gpus=gpus, environment=Environment(variables=variables))))


@pytest.mark.parametrize("setting", [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "0")])
def test_p2p_disabled_speaks(setting: tuple[str, str]) -> None:
    (found,) = _found(p2p_disabled, **dict([setting]))
    assert (found.where, found.seen) == setting


def test_p2p_disabled_speaks_where_the_boards_are_not_known() -> None:
    """A log of NCCL's tells the variable and nothing of the machine."""
    assert len(_found(p2p_disabled, gpus=None, NCCL_P2P_DISABLE="1")) == 1


def test_p2p_disabled_names_the_configuration_file() -> None:
    (found,) = p2p_disabled.judge(Snapshot(environment=Environment(nccl_config={"NCCL_P2P_DISABLE": "1"})))
    assert "file" in found.seen


@pytest.mark.parametrize("value", ["0", "", "true", "2"])
def test_values_nccl_takes_as_no_are_no_finding(value: str) -> None:
    assert _found(p2p_disabled, NCCL_P2P_DISABLE=value) == []
    assert _found(shm_disabled, NCCL_SHM_DISABLE=value) == []


def test_p2p_disabled_is_quiet_with_one_gpu_or_none() -> None:
    assert _found(p2p_disabled, gpus=ONE, NCCL_P2P_DISABLE="1") == []
    none = Snapshot(gpus=Gpus(boards=()), environment=Environment(variables={"NCCL_P2P_DISABLE": "1"}))
    assert list(p2p_disabled.judge(none)) == []


def test_p2p_disabled_is_quiet_where_the_driver_refuses_it_anyway() -> None:
    """GeForce cards of the 40 series."""
    machine = Snapshot(
        gpus=FOUR,
        topology=Topology(pairs=(GpuPair(first=0, second=1, peer_access=False),)),
        environment=Environment(variables={"NCCL_P2P_DISABLE": "1"}),
    )
    assert list(p2p_disabled.judge(machine)) == []


def test_shm_disabled_speaks_with_several_gpus_alone() -> None:
    assert len(_found(shm_disabled, NCCL_SHM_DISABLE="1")) == 1
    assert _found(shm_disabled, gpus=ONE, NCCL_SHM_DISABLE="1") == []
    assert _found(shm_disabled) == []


def test_nvls_disabled_is_told_on_hopper_with_switches_alone() -> None:
    assert len(_found(nvls_disabled, NCCL_NVLS_ENABLE="0")) == 1
    assert _found(nvls_disabled, NCCL_NVLS_ENABLE="1") == []
    ampere = Gpus(boards=(Gpu(index=0, compute_capability="8.0"), Gpu(index=1, compute_capability="8.0")))
    assert _found(nvls_disabled, gpus=ampere, NCCL_NVLS_ENABLE="0") == []
    bridged = Snapshot(topology=Topology(nvswitches=0), environment=Environment(variables={"NCCL_NVLS_ENABLE": "0"}))
    assert list(nvls_disabled.judge(bridged)) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("NCCL_SOCKET_IFACE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_DISBLE", "NCCL_IB_DISABLE"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLNG", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
    ],
)
def test_a_misspelt_name_is_told_with_the_right_one(name: str, near: str) -> None:
    (found,) = _found(unknown_variable, **{name: "1"})
    assert (found.where, found.wanted, found.severity) == (name, near, None)


def test_a_name_unlike_any_other_is_an_info() -> None:
    (found,) = _found(unknown_variable, NCCL_FLUX_CAPACITOR="1")
    assert (found.severity, found.confidence) == (Severity.INFO, "likely")


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_VERSION",
        "NCCL_DEBUG",
        "NCCL_CROSS_NIC",
        "NCCL_GRAPH_DUMP_FILE",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_HOME",
        "NCCL_IBEXT_DISABLE",
        "NCCL_FASTRAK_NUM_FLOWS",
        "NCCL_GPUDIRECTTCPX_CTRL_DEV",
        "NCCL_DYNAMIC_CHUNK_SIZE",
        "NCCL_INSPECTOR_ENABLE",
        "NCCL_TEST_SERVICE_HOST",
        "NCCL_TEST_PORT_80_TCP_ADDR",
        "NCCL_TEST_PORT",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_HOME",
    ],
)
def test_names_that_somebody_reads_are_known(name: str) -> None:
    assert _found(unknown_variable, **{name: "1"}) == []


def test_rccl_has_names_of_its_own() -> None:
    machine = Snapshot(torch=TorchBuild(build="rocm"), environment=Environment(variables={"NCCL_P2P_DISABLED": "1"}))
    assert list(unknown_variable.judge(machine)) == []


def test_renamed_variables_are_told_with_their_new_name() -> None:
    (found,) = _found(renamed_variable, NCCL_ASYNC_ERROR_HANDLING="1")
    assert found.wanted == "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    (gone,) = _found(renamed_variable, NCCL_CHECKS_DISABLE="1")
    assert gone.wanted == "unset"
    assert _found(renamed_variable, TORCH_NCCL_ASYNC_ERROR_HANDLING="1") == []


def test_too_many_sockets_speaks_at_each_limit() -> None:
    assert len(_found(too_many_sockets, NCCL_SOCKET_NTHREADS="17")) == 1
    (found,) = _found(too_many_sockets, NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="5")
    assert found.seen == "16 × 5 = 80"


def test_too_many_sockets_is_quiet_within_them_and_where_one_is_unknown() -> None:
    assert _found(too_many_sockets, NCCL_SOCKET_NTHREADS="8", NCCL_NSOCKS_PERTHREAD="8") == []
    assert _found(too_many_sockets, NCCL_NSOCKS_PERTHREAD="100") == []
    assert _found(too_many_sockets, NCCL_SOCKET_NTHREADS="many") == []


def test_more_ranks_than_gpus_share_one() -> None:
    (found,) = _found(duplicate_gpu, LOCAL_WORLD_SIZE="8")
    assert (found.seen, found.confidence) == ("8 on 4 GPUs", "likely")


def test_ranks_that_see_their_own_share_are_not_judged() -> None:
    assert _found(duplicate_gpu, LOCAL_WORLD_SIZE="4") == []
    assert _found(duplicate_gpu, gpus=ONE, LOCAL_WORLD_SIZE="8", SLURM_JOB_ID="7") == []
    assert _found(duplicate_gpu, LOCAL_WORLD_SIZE="8", CUDA_VISIBLE_DEVICES="3") == []
    assert _found(duplicate_gpu, gpus=Gpus(boards=(Gpu(index=0, mig_mode=True),)), LOCAL_WORLD_SIZE="7") == []
    assert _found(duplicate_gpu, gpus=None, LOCAL_WORLD_SIZE="8") == []
