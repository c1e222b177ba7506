"""Rules on CPUs."""

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.findings import Severity
from gpudoctor.rules.cpu import cpu_quota, numa_balancing, omp_threads, powersave_governor
from gpudoctor.snapshot import Snapshot

ONE = Gpus(boards=(Gpu(index=0),))
EIGHT = Gpus(boards=tuple(Gpu(index=index) for index in range(8)))

# SYS004


def test_cpu_quota_speaks_of_a_container_with_few_cpus() -> None:
    (found,) = cpu_quota.judge(Snapshot(cpu=Cpu(count=96, quota=4.0), gpus=EIGHT))
    assert (found.what, found.seen, found.wanted) == ("quota", "4 CPUs for 8 GPUs", "16 (2 a GPU)")


def test_cpu_quota_speaks_of_a_job_bound_to_one_cpu() -> None:
    (found,) = cpu_quota.judge(Snapshot(cpu=Cpu(count=96, affinity=(5,)), gpus=ONE))
    assert (found.what, found.seen) == ("affinity", "1 CPUs for 1 GPU")


def test_cpu_quota_speaks_of_fewer_cpus_than_the_policys_workers() -> None:
    machine = Snapshot(cpu=Cpu(count=96, quota=24.0), gpus=EIGHT, expected=Expected(workers=8))
    (found,) = cpu_quota.judge(machine)
    assert (found.wanted, found.source) == ("64 (8 loader workers a GPU)", "the policy")


def test_cpu_quota_is_quiet_in_a_rank_that_its_launcher_bound() -> None:
    for variables in ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, {"LOCAL_WORLD_SIZE": "8"}):
        cpu = Cpu(count=128, affinity=tuple(range(12)), cpuset=tuple(range(96)))
        machine = Snapshot(cpu=cpu, gpus=EIGHT, environment=Environment(variables=variables))
        assert list(cpu_quota.judge(machine)) == []


def test_cpu_quota_is_quiet_where_the_machine_has_no_more() -> None:
    cpu = Cpu(count=1, affinity=(0,), cpuset=(0,), quota=1.0)
    assert list(cpu_quota.judge(Snapshot(cpu=cpu, gpus=ONE))) == []


def test_cpu_quota_is_quiet_without_gpus() -> None:
    for gpus in (None, Gpus()):
        assert list(cpu_quota.judge(Snapshot(cpu=Cpu(count=96, quota=0.5), gpus=gpus))) == []


# SYS006


def test_powersave_governor_speaks_where_it_means_the_lowest_frequency() -> None:
    for driver in ("acpi-cpufreq", "intel_cpufreq", "amd-pstate", "cppc_cpufreq"):
        cpu = Cpu(governors=("powersave",), scaling_drivers=(driver,))
        assert len(list(powersave_governor.judge(Snapshot(cpu=cpu, gpus=ONE)))) == 1


def test_powersave_governor_is_quiet_where_it_follows_the_load() -> None:
    for driver in ("intel_pstate", "amd-pstate-epp"):
        cpu = Cpu(governors=("powersave",), scaling_drivers=(driver,))
        assert list(powersave_governor.judge(Snapshot(cpu=cpu, gpus=ONE))) == []


def test_powersave_governor_is_quiet_on_a_laptop_without_a_gpu() -> None:
    cpu = Cpu(governors=("powersave",), scaling_drivers=("acpi-cpufreq",))
    assert list(powersave_governor.judge(Snapshot(cpu=cpu, gpus=Gpus()))) == []


def test_powersave_governor_is_quiet_where_the_driver_is_not_known() -> None:
    assert list(powersave_governor.judge(Snapshot(cpu=Cpu(governors=("powersave",)), gpus=ONE))) == []


# SYS007


def test_numa_balancing_is_told_on_several_nodes() -> None:
    assert numa_balancing.severity is Severity.INFO
    (found,) = numa_balancing.judge(Snapshot(cpu=Cpu(numa_balancing=True, numa_nodes=2), gpus=EIGHT))
    assert found.seen == "on, 2 nodes"


def test_numa_balancing_is_quiet_on_one_node() -> None:
    for nodes in (1, None):
        assert list(numa_balancing.judge(Snapshot(cpu=Cpu(numa_balancing=True, numa_nodes=nodes), gpus=EIGHT))) == []


def test_numa_balancing_is_quiet_where_the_kernel_does_not_tell() -> None:
    assert list(numa_balancing.judge(Snapshot(cpu=Cpu(numa_nodes=2), gpus=EIGHT))) == []


# SYS008


def _ranks(**variables: str) -> Environment:
    return Environment(variables=variables)


def test_omp_threads_speaks_when_the_ranks_want_more_cpus_than_there_are() -> None:
    environment = _ranks(OMP_NUM_THREADS="16", LOCAL_WORLD_SIZE="8")
    (found,) = omp_threads.judge(Snapshot(cpu=Cpu(count=64), environment=environment))
    assert found.seen == "16 × 8 ranks = 128"
    assert found.fix[0].command == "export OMP_NUM_THREADS=8"


def test_omp_threads_is_quiet_where_each_rank_has_cpus_of_its_own() -> None:
    cpu = Cpu(count=128, affinity=tuple(range(16)))
    environment = _ranks(OMP_NUM_THREADS="16", LOCAL_WORLD_SIZE="8")
    assert list(omp_threads.judge(Snapshot(cpu=cpu, environment=environment))) == []


def test_omp_threads_is_quiet_unless_both_variables_are_numbers() -> None:
    for environment in (
        _ranks(OMP_NUM_THREADS="64"),
        _ranks(LOCAL_WORLD_SIZE="8"),
        _ranks(OMP_NUM_THREADS="64,2", LOCAL_WORLD_SIZE="8"),
    ):
        assert list(omp_threads.judge(Snapshot(cpu=Cpu(count=8), environment=environment))) == []


def test_omp_threads_is_quiet_where_the_cpus_are_unknown() -> None:
    environment = _ranks(OMP_NUM_THREADS="16", LOCAL_WORLD_SIZE="8")
    assert list(omp_threads.judge(Snapshot(cpu=Cpu(), environment=environment))) == []
