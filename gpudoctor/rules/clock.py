"""Rules on the clock."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot


@rule(
    "SYS010",
    "clock-unsynchronised",
    Severity.WARNING,
    why="nodes whose clocks drift apart disagree on rendezvous deadlines, file times and the order of log lines",
    fix=Fix("start a time service", "sudo timedatectl set-ntp true", safety="needs root"),
    confirm="timedatectl show -p NTPSynchronized; chronyc tracking",
    source="adjtimex(2), STA_UNSYNC",
)
def clock_unsynchronised(machine: Snapshot) -> Iterator[Evidence]:
    """The kernel says that nothing keeps its clock in step, and the job has several nodes.

    Silent on one node, whose ranks share a clock. A service that does not report to the kernel (chrony without rtcsync)
    looks the same, hence only likely.
    """
    nodes = max(machine.expected.nodes or 1, (machine.environment.nodes if machine.environment else None) or 1)
    if machine.clock is not None and machine.clock.synchronised is False and nodes > 1:
        yield Evidence(
            what="clock", seen="not synchronised", wanted=f"the same time on {nodes} nodes", confidence="likely"
        )


RULES: tuple[Rule[Snapshot], ...] = (clock_unsynchronised,)
