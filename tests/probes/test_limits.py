"""Limits: recorded control groups of both versions, and this machine's own rlimits."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from gpudoctor.probes import limits
from gpudoctor.probes.system import NotRead, System

Record = Callable[[dict[str, str]], System]
GIB = 2**30
V1_UNLIMITED = str(2**63 - 4096)

LIMITS = """
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             {processes}          63000                processes
Max open files            1024                 1048576              files
Max locked memory         {locked}             unlimited            bytes
""".strip()

USER = {
    "/proc/self/limits": LIMITS.format(processes="63000", locked="8388608"),
    "/proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000",
    "/proc/self/uid_map": "         0          0 4294967295",
    "/proc/meminfo": "MemTotal:       1056000000 kB\nMemAvailable:   1000000000 kB\nSwapTotal:             0 kB",
}
CGROUP2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"


def _v1(controller: str, root: str = "/") -> str:
    return f"33 32 0:29 {root} /sys/fs/cgroup/{controller} ro - cgroup cgroup rw,{controller}"


def test_a_docker_container_with_cgroup_2_sees_its_own_group_as_the_root(record: Record) -> None:
    found = limits.read(
        record(
            {
                **USER,
                "/proc/self/cgroup": "0::/",
                "/proc/self/mountinfo": CGROUP2,
                "/sys/fs/cgroup/memory.max": str(16 * GIB),
                "/sys/fs/cgroup/memory.current": str(15 * GIB),
                "/sys/fs/cgroup/memory.stat": f"anon {GIB}\nfile {10 * GIB}\nactive_file {4 * GIB}\n"
                f"inactive_file {5 * GIB}\nshmem {GIB}\nslab_reclaimable {GIB}",
                "/sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2",
                "/sys/fs/cgroup/pids.max": "512",
                "/sys/fs/cgroup/pids.current": "31",
            }
        )
    )
    assert (found.cgroup_version, found.memory_limit_bytes, found.oom_kills) == (2, 16 * GIB, 2)
    assert found.memory_in_use_bytes == 5 * GIB  # Files in /dev/shm cannot be given back and stay counted.
    assert (found.processes, found.processes_in_use) == (512, 31)
    assert found.unread == {}


def test_a_systemd_slice_above_binds_the_session_below(record: Record) -> None:
    session = "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"
    found = limits.read(
        record(
            {
                **USER,
                "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope",
                "/proc/self/mountinfo": CGROUP2,
                f"{session}/memory.max": "max",
                f"{session}/memory.current": str(GIB),
                f"{session}/pids.max": "max",
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max": str(64 * GIB),
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.current": str(60 * GIB),
                "/sys/fs/cgroup/user.slice/memory.max": "max",
            }
        )
    )
    assert (found.memory_limit_bytes, found.memory_in_use_bytes) == (64 * GIB, 60 * GIB)
    assert (found.processes, found.processes_in_use) == (63000, None)


def test_kubernetes_with_cgroup_1_tells_a_path_of_the_host(record: Record) -> None:
    path = "/kubepods/burstable/pod1f/9ab"
    found = limits.read(
        record(
            {
                **USER,
                "/proc/self/cgroup": f"9:pids:{path}\n4:memory:{path}\n1:name=systemd:{path}",
                "/proc/self/mountinfo": "\n".join((_v1("memory", path), _v1("pids", path))),
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(32 * GIB),
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": str(9 * GIB),
                # The pod's own limit stands above and is not mounted here.
                "/sys/fs/cgroup/memory/memory.stat": f"cache {8 * GIB}\nhierarchical_memory_limit {24 * GIB}\n"
                f"total_inactive_file {3 * GIB}\ntotal_active_file {2 * GIB}",
                "/sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
                "/sys/fs/cgroup/pids/pids.max": "max",
            }
        )
    )
    assert (found.cgroup_version, found.memory_limit_bytes) == (1, 24 * GIB)
    assert (found.memory_in_use_bytes, found.oom_kills) == (4 * GIB, 1)


def test_a_hybrid_machine_limits_memory_by_version_1_and_nothing_is_its_largest_number(record: Record) -> None:
    found = limits.read(
        record(
            {
                **USER,
                "/proc/self/cgroup": "4:memory:/job/a\n0::/",
                "/proc/self/mountinfo": f"{_v1('memory')}\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
                "/sys/fs/cgroup/memory/job/a/memory.limit_in_bytes": V1_UNLIMITED,
                "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(2**63 - 65536),  # Pages of 64 KiB.
                "/sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {V1_UNLIMITED}",
            }
        )
    )
    assert (found.cgroup_version, found.memory_limit_bytes) == (1, None)
    assert "memory_limit" not in found.unread


def test_a_group_above_the_namespace_is_read_at_the_mount(record: Record) -> None:
    found = limits.read(
        record(
            {
                **USER,
                "/proc/self/cgroup": "0::/../../other",
                "/proc/self/mountinfo": CGROUP2,
                "/sys/fs/cgroup/memory.max": str(GIB),
            }
        )
    )
    assert found.memory_limit_bytes == GIB


def test_a_machine_without_control_groups_says_so(record: Record) -> None:
    found = limits.read(record(USER))
    assert found.unread == {"memory_limit": "no control groups", "processes": "no control groups"}
    found = limits.read(record({**USER, "/proc/self/cgroup": "0::/"}))
    assert found.unread["memory_limit"] == "the control groups are not mounted here"


def test_rlimits_are_read_as_the_kernel_prints_them(record: Record) -> None:
    found = limits.read(record(USER))
    assert (found.open_files, found.open_files_hard) == (1024, 1048576)
    assert (found.locked_memory_bytes, found.locked_memory_unlimited) == (8388608, False)
    assert found.locked_memory_exempt is False
    assert found.memory_total_bytes == 1056000000 * 1024
    unlimited = {**USER, "/proc/self/limits": LIMITS.format(processes="unlimited", locked="unlimited")}
    found = limits.read(record(unlimited))
    assert (found.locked_memory_bytes, found.locked_memory_unlimited, found.processes) == (None, True, None)


def test_root_is_exempt_unless_it_is_root_of_a_user_namespace(record: Record) -> None:
    root = {**USER, "/proc/self/status": "CapEff:\t000001ffffffffff"}
    found = limits.read(record(root))
    assert (found.locked_memory_exempt, found.processes) == (True, None)
    found = limits.read(record({**root, "/proc/self/uid_map": "0 1000 1"}))
    assert (found.locked_memory_exempt, found.processes) == (None, 63000)


def test_a_recorded_machine_without_proc_is_not_read(record: Record) -> None:
    with pytest.raises(NotRead, match="no /proc"):
        limits.read(record({}))


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit")
def test_the_limit_that_prlimit_sets_is_the_one_that_is_read() -> None:
    script = (
        "import msgspec; from gpudoctor.probes import limits; from gpudoctor.probes.system import System;"
        "print(msgspec.json.encode([limits.read(System()), limits.from_system_calls()]).decode())"
    )
    command = ["prlimit", "--nofile=512:1024", "--memlock=65536:65536", sys.executable, "-c", script]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    for found in json.loads(output):
        assert (found["open_files"], found["open_files_hard"]) == (512, 1024)
        assert (found["locked_memory_bytes"], found["locked_memory_unlimited"]) == (65536, False)
