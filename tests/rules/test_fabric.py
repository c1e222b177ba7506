"""The NVSwitch fabric."""

import msgspec
import pytest

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Topology
from gpudoctor.facts.torch import TorchRuntime
from gpudoctor.findings import Severity
from gpudoctor.rules.fabric import fabric_not_ready, fabric_unhealthy
from gpudoctor.snapshot import Snapshot


def _gpus(*states: str | None) -> Gpus:
    return Gpus(boards=tuple(Gpu(index=index, fabric_state=state) for index, state in enumerate(states)))


def test_fabric_not_ready_speaks_at_error_802() -> None:
    (found,) = fabric_not_ready.judge(Snapshot(driver=Driver(cuda_error=802)))
    assert found.seen == "error 802 (cudaErrorSystemNotReady)"


def test_fabric_not_ready_speaks_of_boards_that_wait() -> None:
    (found,) = fabric_not_ready.judge(Snapshot(gpus=_gpus("completed", "in_progress")))
    assert found.seen == "GPU 1 in progress"


def test_fabric_not_ready_speaks_where_the_manager_is_missing_or_of_another_version(healthy: Snapshot) -> None:
    assert healthy.driver is not None
    stopped = msgspec.structs.replace(healthy.driver, fabric_manager_running=False, cuda_error=None)
    other = msgspec.structs.replace(healthy.driver, fabric_manager_version="570.124.06")
    quick = msgspec.structs.replace(healthy, torch_runtime=None)
    (found,) = fabric_not_ready.judge(msgspec.structs.replace(quick, driver=stopped))
    assert found.severity is None
    (found,) = fabric_not_ready.judge(msgspec.structs.replace(healthy, driver=stopped))
    assert found.severity is Severity.WARNING
    (found,) = fabric_not_ready.judge(msgspec.structs.replace(healthy, driver=other))
    assert found.seen == "version 570.124.06"


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(gpus=_gpus("not_started")),
        Snapshot(gpus=_gpus("not_supported", "not_supported"), driver=Driver(fabric_manager_running=False)),
        Snapshot(gpus=_gpus(None, None), topology=Topology(nvswitches=0), driver=Driver(fabric_manager_running=False)),
        Snapshot(gpus=_gpus(None, None), topology=Topology(nvswitches=6), driver=Driver(fabric_manager_running=None)),
        Snapshot(gpus=_gpus("in_progress", "in_progress"), torch_runtime=TorchRuntime(cuda_available=True)),
    ],
)
def test_fabric_not_ready_is_quiet_without_a_fabric_of_its_own(machine: Snapshot) -> None:
    assert list(fabric_not_ready.judge(machine)) == []


def test_fabric_unhealthy_speaks_of_the_summary() -> None:
    boards = (
        Gpu(index=0, fabric_state="completed", fabric_health="unhealthy"),
        Gpu(index=1, fabric_state="completed", fabric_health="limited_capacity"),
    )
    found = list(fabric_unhealthy.judge(Snapshot(gpus=Gpus(boards=boards))))
    assert [(item.where, item.severity) for item in found] == [("GPU 0", None), ("GPU 1", Severity.WARNING)]


def test_fabric_unhealthy_is_quiet_without_a_summary_and_while_the_fabric_comes_up() -> None:
    boards = (
        Gpu(index=0, fabric_state="completed", fabric_health=None),
        Gpu(index=1, fabric_state="in_progress", fabric_health="unhealthy"),
        Gpu(index=2, fabric_state="completed", fabric_health="healthy"),
    )
    assert list(fabric_unhealthy.judge(Snapshot(gpus=Gpus(boards=boards)))) == []
