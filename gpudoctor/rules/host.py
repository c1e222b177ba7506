"""Rules on the machine and its kernel."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables.cuda import numbers

OLDEST_KERNEL = (5, 5)


@rule(
    "SYS011",
    "old-kernel",
    Severity.INFO,
    why="jobs of several processes have been seen to hang on kernels before 5.5",
    fix=Fix("move to a newer kernel or distribution when there is an occasion", safety="needs root"),
    confirm="uname -r",
    source="Hugging Face Accelerate, check_os_kernel, which warns below 5.5.0",
)
def old_kernel(machine: Snapshot) -> Iterator[Evidence]:
    """The Linux kernel is older than 5.5.

    Silent on other systems. Distributions that carry fixes back to an older number are told all the same, as info.
    """
    host = machine.host
    if host is None or host.kernel is None or host.system != "Linux":
        return
    # `4.18.0-553.el8_10.x86_64`: the number ends at the first dash.
    version = numbers(host.kernel.split("-")[0])
    if version and version[:2] < OLDEST_KERNEL:
        yield Evidence(what="kernel", seen=host.kernel, wanted="5.5 or newer")


RULES: tuple[Rule[Snapshot], ...] = (old_kernel,)
