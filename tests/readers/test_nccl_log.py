"""Logs of NCCL and RCCL: several ranks and hosts mixed, in the layouts of several versions."""

import pytest

from gpudoctor.facts.nccl_log import DuplicateGpu, Mismatch, NcclLog
from gpudoctor.readers import nccl_log
from gpudoctor.snapshot import Snapshot

TWO_NODES = """\
a1:10:10 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
a1:10:10 [0] NCCL INFO cudaDriverVersion 13000
a1:10:10 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
a1:10:10 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0
a1:10:10 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
a1:10:31 [0] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin v10 (v10)
a1:10:31 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
a1:10:31 [0] NCCL INFO Using network IBext_v10
a1:10:31 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)
a1:10:31 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
[2026-12-01 10:00:00] b2:77:78 [3] NCCL INFO Channel 00/0 : 11[3] -> 3[3] [receive] via NET/IBext_v10/0/GDRDMA
b2:77:78 [3] NCCL INFO Channel 01/0 : 11[3] -> 12[4] via P2P/CUMEM
b2:77:78 [3] NCCL INFO Channel 02 : 11[7000] -> 12[8000] via SHM/direct/direct
"""


def _read(text: str) -> Snapshot:
    snapshot = nccl_log.read(text)
    assert snapshot is not None
    return snapshot


def _log(text: str) -> NcclLog:
    log = _read(text).nccl_log
    assert log is not None
    return log


def test_a_log_of_two_nodes_is_read() -> None:
    log = _log(TWO_NODES)
    assert log == NcclLog(
        version="2.28.9+cuda13.0",
        versions={"a1": "2.28.9+cuda13.0"},
        hosts=("a1", "b2"),
        node_count=2,
        world_size=16,
        bootstrap_interfaces=("eth0",),
        network="IBext_v10",
        plugin="NCCL RDMA Plugin v10 (v10)",
        ib_devices=("mlx5_0", "mlx5_1"),
        gpudirect=True,
        channels={"NET": 1, "P2P": 1, "SHM": 1},
        nvls=True,
    )


def test_what_it_says_of_driver_and_variables_goes_to_those() -> None:
    snapshot = _read(TWO_NODES)
    assert snapshot.driver is not None
    assert snapshot.driver.cuda_version == "13.0"
    assert snapshot.environment is not None
    assert snapshot.environment.variables == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_TIMEOUT": "22"}


def test_no_rdma_device_is_an_empty_list() -> None:
    log = _log(
        "h:1:2 [0] NCCL INFO Failed to open libibverbs.so[.1]\n"
        "h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]veth1:fe80::1%veth1<0>\n"
        "h:1:2 [0] NCCL INFO Using network Socket\n"
    )
    assert (log.ib_devices, log.network, log.socket_interfaces) == ((), "Socket", ("eth0", "veth1"))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("h1:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9", "h1"),
        ("worker-0: NCCL version 2.27.3+cuda12.9", "worker-0"),
        ("[rank3]: DistBackendError: NCCL error in: x.cpp:93, invalid usage, NCCL version 2.27.3", "rank 3"),
    ],
)
def test_a_version_belongs_to_where_its_line_says(line: str, place: str) -> None:
    log = _log(line)
    assert [(name, version.split("+")[0]) for name, version in log.versions.items()] == [(place, "2.27.3")]


def test_versions_that_were_asked_for_on_two_nodes_belong_to_their_prompts() -> None:
    asked = "{}$ python -c 'import torch; print(torch.cuda.nccl.version())'\n({})\n"
    log = _log(asked.format("node1:~", "2, 18, 3") + asked.format("user@node2", "2, 14, 3"))
    assert log.versions == {"node1": "2.18.3", "node2": "2.14.3"}


def test_a_version_in_a_line_of_its_own_belongs_to_nobody() -> None:
    log = _log("NCCL version 2.27.3+cuda12.9\n")
    assert (log.version, log.versions) == ("2.27.3+cuda12.9", {})


def test_two_ranks_on_one_device_are_read_without_any_line_of_nccls_own() -> None:
    log = _log("Last error:\nDuplicate GPU detected : rank 4 and rank 0 both on CUDA device b3000\n")
    assert log.duplicates == (DuplicateGpu(ranks=(4, 0), device="b3000"),)


@pytest.mark.parametrize(
    "line",
    [
        "h:1:2 [3] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed'",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'.",
    ],
)
def test_a_failure_of_nvls_is_read(line: str) -> None:
    assert _log(line).nvls_error is not None


def test_nvls_that_is_not_available_is_no_failure() -> None:
    log = _log("h:1:2 [5] NCCL INFO NVLS multicast support is not available on dev 5")
    assert (log.nvls, log.nvls_error) == (False, None)


def test_messages_of_another_size_are_a_likely_mismatch() -> None:
    warn = "h:1:2 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.2<5> "
    (found,) = _log(warn + "collective mismatch error, local size 4096 remote size 1024").mismatches
    assert found == Mismatch(
        seen="a message of 1024 bytes where 4096 were expected",
        bytes_received=1024,
        bytes_expected=4096,
        certain=False,
    )


def test_rccl_is_told_from_nccl() -> None:
    snapshot = _read(
        'h:4:4 [0] src/init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line\n'
        "h:4:4 [0] NCCL INFO RCCL version : 2.22.3-HEAD:271856d\n"
        "h:4:4 [0] NCCL INFO cudaDriverVersion 60443482\n"
    )
    assert snapshot.nccl_log is not None
    assert snapshot.nccl_log.rccl
    assert snapshot.nccl_log.wants_passthrough
    assert snapshot.nccl_log.version == "2.22.3-HEAD:271856d"
    assert snapshot.driver is None


@pytest.mark.parametrize("text", ["", "we use NCCL on all nodes", "export NCCL_DEBUG=INFO", "NCCL_P2P_DISABLE=1"])
def test_a_text_that_only_speaks_of_nccl_is_none(text: str) -> None:
    assert nccl_log.read(text) is None
