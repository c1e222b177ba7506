"""CPUs: recorded machines, and this one."""

import os
import sys
from collections.abc import Callable

import pytest

from gpudoctor.probes import cpu
from gpudoctor.probes.system import NotRead, System

Record = Callable[[dict[str, str]], System]

CPUS = "/sys/devices/system/cpu"
CGROUP2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
FOUR = {
    "/proc/cpuinfo": "\n".join(f"processor\t: {index}\nmodel name\t: AMD EPYC 9654\n" for index in range(4)),
    "/proc/self/status": "Cpus_allowed:\tff\nCpus_allowed_list:\t0-7",
    f"{CPUS}/online": "0-3",
    **{f"{CPUS}/cpu{index}/topology/core_cpus_list": f"{index % 2},{index % 2 + 2}" for index in range(4)},
    "/proc/self/cgroup": "0::/kubepods.slice/pod1/container",
    "/proc/self/mountinfo": CGROUP2,
}


def test_a_quota_above_the_container_binds_it(record: Record) -> None:
    found = cpu.read(
        record(
            {
                **FOUR,
                "/sys/fs/cgroup/kubepods.slice/pod1/container/cpu.max": "max 100000",
                "/sys/fs/cgroup/kubepods.slice/pod1/cpu.max": "150000 100000",
                "/sys/fs/cgroup/kubepods.slice/cpu.max": "300000 100000",
            }
        )
    )
    assert found.quota == 1.5
    assert found.usable == 1.5
    assert found.unread == {}


def test_version_1_gives_quota_and_period_apart_and_minus_one_for_none(record: Record) -> None:
    mount = "33 32 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct"
    folder = "/sys/fs/cgroup/cpu,cpuacct"
    machine = {
        **FOUR,
        "/proc/self/cgroup": "5:cpu,cpuacct:/docker/ab\n3:cpuset:/docker/ab",
        "/proc/self/mountinfo": f"{mount}\n34 32 0:30 /docker/ab /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset",
        f"{folder}/cpu.cfs_quota_us": "200000",
        f"{folder}/cpu.cfs_period_us": "50000",
        "/sys/fs/cgroup/cpuset/cpuset.cpus": "0-1",
    }
    found = cpu.read(record(machine))
    assert (found.quota, found.cpuset) == (4.0, (0, 1))
    assert cpu.read(record({**machine, f"{folder}/cpu.cfs_quota_us": "-1"})).quota is None


def test_a_mask_of_cpus_that_are_not_there_is_cut_to_those_that_are(record: Record) -> None:
    found = cpu.read(record(FOUR))
    assert (found.count, found.affinity) == (4, (0, 1, 2, 3))


def test_cores_are_told_from_threads(record: Record) -> None:
    assert cpu.read(record(FOUR)).cores == 2
    assert cpu.read(record({"/proc/cpuinfo": "processor\t: 0"})).cores is None


def test_governors_come_with_their_drivers(record: Record) -> None:
    policies = {
        f"{CPUS}/cpufreq/policy{index}/{name}": value
        for index in range(4)
        for name, value in (("scaling_governor", "powersave"), ("scaling_driver", "intel_pstate"))
    }
    found = cpu.read(record({**FOUR, **policies}))
    assert (found.governors, found.scaling_drivers) == (("powersave",), ("intel_pstate",))
    assert cpu.read(record({**FOUR})).model == "AMD EPYC 9654"


def test_a_virtual_machine_has_no_governor(record: Record) -> None:
    assert cpu.read(record(FOUR)).governors == ()


def test_gpu_memory_is_no_numa_node_to_count(record: Record) -> None:
    """GH200: one node has the CPUs, others are the GPU's memory."""
    node = "/sys/devices/system/node"
    found = cpu.read(
        record({**FOUR, f"{node}/online": "0-8", f"{node}/has_cpu": "0", "/proc/sys/kernel/numa_balancing": "2"})
    )
    assert (found.numa_nodes, found.numa_balancing) == (1, False)


def test_a_machine_whose_control_groups_are_hidden_says_so(record: Record) -> None:
    found = cpu.read(record({**FOUR, "/proc/self/mountinfo": ""}))
    assert found.unread["quota"] == "the control groups are not mounted here"


def test_a_recorded_machine_without_proc_is_not_read(record: Record) -> None:
    with pytest.raises(NotRead, match="no /proc"):
        cpu.read(record({}))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux")
def test_this_machine_is_read_as_the_system_calls_tell() -> None:
    found = cpu.read(System())
    assert found.affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert found.count is not None
    assert found.count >= len(found.affinity)


def test_psutil_counts_where_there_is_no_proc() -> None:
    found = cpu.from_psutil(System())
    assert found.count == os.cpu_count()
