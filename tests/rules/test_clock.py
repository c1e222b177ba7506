"""Rules on the clock."""

from gpudoctor.facts.clock import Clock
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.rules.clock import clock_unsynchronised
from gpudoctor.snapshot import Snapshot

UNSYNCHRONISED = Clock(synchronised=False, max_error_s=16.0)


def test_clock_unsynchronised_speaks_of_a_job_of_several_nodes() -> None:
    by_policy = Snapshot(clock=UNSYNCHRONISED, expected=Expected(nodes=2))
    by_launcher = Snapshot(clock=UNSYNCHRONISED, environment=Environment(variables={"SLURM_NNODES": "2"}))
    for machine in (by_policy, by_launcher):
        (found,) = clock_unsynchronised.judge(machine)
        assert (found.wanted, found.confidence) == ("the same time on 2 nodes", "likely")


def test_clock_unsynchronised_is_quiet_on_one_node() -> None:
    one = Environment(variables={"SLURM_NNODES": "1"})
    for machine in (Snapshot(clock=UNSYNCHRONISED), Snapshot(clock=UNSYNCHRONISED, environment=one)):
        assert list(clock_unsynchronised.judge(machine)) == []


def test_clock_unsynchronised_is_quiet_where_the_kernel_was_not_asked() -> None:
    for clock in (None, Clock()):
        assert list(clock_unsynchronised.judge(Snapshot(clock=clock, expected=Expected(nodes=8)))) == []
