"""Rules on the limits of processes and control groups."""

from gpudoctor.facts.container import Container
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.network import Network, RdmaPort
from gpudoctor.findings import Severity
from gpudoctor.rules.limits import few_open_files, few_processes, memlock_limited, memory_limit
from gpudoctor.snapshot import Snapshot

GIB = 2**30
ONE = Gpus(boards=(Gpu(index=0),))
EIGHT = Gpus(boards=tuple(Gpu(index=index) for index in range(8)))
RDMA = Network(rdma_ports=(RdmaPort(device="mlx5_0", port=1),))
MACOS = Host(system="Darwin")

# SYS001


def test_few_open_files_raises_the_soft_limit_as_far_as_the_hard_one_goes() -> None:
    (found,) = few_open_files.judge(Snapshot(limits=Limits(open_files=1024, open_files_hard=8192)))
    assert found.seen == "1024 (at most 8192)"
    assert found.fix[0].command == "ulimit -n 8192"


def test_few_open_files_needs_more_than_a_shell_where_the_hard_limit_is_low() -> None:
    limits = Limits(open_files=1024, open_files_hard=1024)
    (bare,) = few_open_files.judge(Snapshot(limits=limits))
    assert "limits.conf" in bare.fix[0].text
    (docker,) = few_open_files.judge(Snapshot(limits=limits, container=Container(kind="docker")))
    assert "--ulimit nofile" in docker.fix[0].text


def test_few_open_files_is_quiet_on_macos_where_256_is_normal() -> None:
    assert list(few_open_files.judge(Snapshot(host=MACOS, limits=Limits(open_files=256)))) == []


def test_few_open_files_is_quiet_without_a_limit() -> None:
    assert list(few_open_files.judge(Snapshot(limits=Limits(open_files_hard=1024)))) == []


# SYS002


def test_memlock_limited_is_a_warning_with_rdma_devices() -> None:
    limits = Limits(locked_memory_bytes=8 * 2**20, memory_total_bytes=2000 * GIB)
    (found,) = memlock_limited.judge(Snapshot(limits=limits, gpus=EIGHT, network=RDMA))
    assert (found.severity, found.seen) == (Severity.WARNING, "8 MiB")


def test_memlock_limited_is_an_info_without() -> None:
    for network in (None, Network(), Network(rdma_ports=())):
        machine = Snapshot(limits=Limits(locked_memory_bytes=65536), gpus=ONE, network=network)
        (found,) = memlock_limited.judge(machine)
        assert found.severity is Severity.INFO


def test_memlock_limited_is_quiet_where_the_limit_does_not_bind() -> None:
    for limits in (
        Limits(locked_memory_bytes=65536, locked_memory_exempt=True),
        Limits(locked_memory_bytes=1800 * GIB, memory_total_bytes=2000 * GIB),
        Limits(locked_memory_unlimited=True),
    ):
        assert list(memlock_limited.judge(Snapshot(limits=limits, gpus=EIGHT, network=RDMA))) == []


def test_memlock_limited_is_quiet_without_gpus() -> None:
    assert list(memlock_limited.judge(Snapshot(limits=Limits(locked_memory_bytes=65536), gpus=Gpus()))) == []


# SYS003


def test_few_processes_speaks_below_1024() -> None:
    (found,) = few_processes.judge(Snapshot(limits=Limits(processes=512, processes_in_use=20)))
    assert (found.seen, found.wanted) == ("512 at most", "1024 or more")


def test_few_processes_wants_256_a_gpu() -> None:
    assert len(list(few_processes.judge(Snapshot(limits=Limits(processes=2000), gpus=EIGHT)))) == 1
    assert list(few_processes.judge(Snapshot(limits=Limits(processes=2048), gpus=EIGHT))) == []  # Podman's default.


def test_few_processes_speaks_when_nearly_all_are_in_use() -> None:
    (found,) = few_processes.judge(Snapshot(limits=Limits(processes=4096, processes_in_use=4000)))
    assert found.seen == "4000 of 4096 in use"


def test_few_processes_is_quiet_on_macos() -> None:
    assert list(few_processes.judge(Snapshot(host=MACOS, limits=Limits(processes=709)))) == []


def test_few_processes_is_quiet_without_a_limit() -> None:
    assert list(few_processes.judge(Snapshot(limits=Limits(processes_in_use=40000)))) == []


# SYS005


def test_memory_limit_speaks_at_90_per_cent() -> None:
    (found,) = memory_limit.judge(Snapshot(limits=Limits(memory_limit_bytes=16 * GIB, memory_in_use_bytes=15 * GIB)))
    assert found.seen == "15 GiB of 16 GiB"


def test_memory_limit_speaks_after_it_has_killed() -> None:
    limits = Limits(memory_limit_bytes=16 * GIB, memory_in_use_bytes=GIB, oom_kills=3)
    (found,) = memory_limit.judge(Snapshot(limits=limits))
    assert (found.seen, found.confidence) == ("3 under a limit of 16 GiB", "likely")


def test_memory_limit_speaks_where_no_rank_would_fit() -> None:
    (found,) = memory_limit.judge(Snapshot(limits=Limits(memory_limit_bytes=4 * GIB), gpus=EIGHT))
    assert found.seen == "4 GiB"


def test_memory_limit_is_quiet_about_16_gib_beside_an_80_gb_board() -> None:
    gpus = Gpus(boards=(Gpu(index=0, memory_total_bytes=80 * GIB),))
    limits = Limits(memory_limit_bytes=16 * GIB, memory_in_use_bytes=4 * GIB, oom_kills=0)
    assert list(memory_limit.judge(Snapshot(limits=limits, gpus=gpus))) == []


def test_memory_limit_is_quiet_where_the_machine_is_the_limit() -> None:
    """A kill without a limit was the whole machine's, and a limit above its memory is none."""
    for limit in (None, 64 * GIB):
        limits = Limits(memory_limit_bytes=limit, memory_total_bytes=32 * GIB, oom_kills=2)
        assert list(memory_limit.judge(Snapshot(limits=limits))) == []
