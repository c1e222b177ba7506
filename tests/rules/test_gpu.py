"""Rules on the health of GPU boards."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog, XidEvent
from gpudoctor.findings import Rule, Severity, diagnose
from gpudoctor.rules.gpu import (
    RULES,
    ecc_off,
    gpu_lost,
    inforom_corrupt,
    persistence_off,
    recovery_action,
    retired_page_pending,
    row_remap_failed,
    row_remap_pending,
    uncorrectable_ecc,
)
from gpudoctor.snapshot import Snapshot

LINUX = Host(system="Linux", wsl=False)
BUS = "00000000:0B:00.0"


def _with(*boards: Gpu) -> Snapshot:
    return Snapshot(gpus=Gpus(boards=boards))


FAULTS = pytest.mark.parametrize(
    ("asked", "field", "bad", "good"),
    [
        (uncorrectable_ecc, "ecc_uncorrected_volatile", 4, 0),
        (row_remap_pending, "row_remap_pending", True, False),
        (row_remap_failed, "row_remap_failed", True, False),
        (retired_page_pending, "retired_page_pending", True, False),
        (recovery_action, "recovery_action", "gpu_reset", "none"),
        (inforom_corrupt, "inforom_corrupt", True, False),
    ],
    ids=lambda value: getattr(value, "code", None),
)


@FAULTS
def test_a_fault_is_told_of_its_board_alone(asked: Rule[Snapshot], field: str, bad: object, good: object) -> None:
    machine = _with(Gpu(index=0, **{field: good}), Gpu(index=5, **{field: bad}), Gpu(index=6))  # type: ignore[arg-type]
    (found,) = asked.judge(machine)
    assert found.where == "GPU 5"


def test_errors_of_earlier_times_and_replaced_rows_are_done_with() -> None:
    board = Gpu(index=0, ecc_uncorrected_volatile=0, ecc_uncorrected_aggregate=7, row_remap_uncorrectable=3)
    assert diagnose(_with(board), RULES).findings == ()


def test_a_reset_is_asked_for_by_the_boards_own_number() -> None:
    (found,) = row_remap_pending.judge(_with(Gpu(index=5, row_remap_pending=True)))
    assert found.fix[0].command == "sudo nvidia-smi --gpu-reset -i 5"


def test_a_reboot_that_the_driver_asks_for_is_no_reset() -> None:
    (found,) = recovery_action.judge(_with(Gpu(index=0, recovery_action="node_reboot")))
    assert found.fix[0].command == "sudo reboot"


# GPU007


def test_a_lost_board_is_told_with_nvmls_words() -> None:
    (found,) = gpu_lost.judge(_with(Gpu(index=0), Gpu(index=3, lost=True, error="GPU is lost")))
    assert (found.where, found.seen, found.confidence) == ("GPU 3", "GPU is lost", "certain")


def test_a_board_that_waits_for_a_reset_is_not_lost() -> None:
    machine = _with(Gpu(index=0, error="GPU requires restart", recovery_action="gpu_reset"))
    assert [finding.code for finding in diagnose(machine, RULES).findings] == ["GPU018"]


def test_xid_79_alone_tells_it_too() -> None:
    log = KernelLog(xids=(XidEvent(xid=79, pci_bus_id="0000:0b:00", text="GPU has fallen off the bus."),))
    (found,) = gpu_lost.judge(Snapshot(kernel_log=log))
    assert (found.where, found.confidence) == ("GPU 0000:0b:00", "certain")
    (missing,) = gpu_lost.judge(Snapshot(kernel_log=log, gpus=Gpus(boards=(Gpu(index=0),))))
    assert missing.confidence == "likely"


def test_xid_79_of_a_board_that_answers_is_history() -> None:
    log = KernelLog(xids=(XidEvent(xid=79, pci_bus_id="0000:0b:00"),))
    machine = Snapshot(kernel_log=log, gpus=Gpus(boards=(Gpu(index=0, pci_bus_id=BUS),)))
    assert list(gpu_lost.judge(machine)) == []


def test_a_lost_board_hides_no_fault_of_another() -> None:
    machine = _with(Gpu(index=0, lost=True), Gpu(index=1, ecc_uncorrected_volatile=2, row_remap_pending=True))
    assert {finding.code for finding in diagnose(machine, RULES).findings} == {"GPU001", "GPU002", "GPU007"}


# GPU019, GPU020


def test_ecc_off_is_an_info_and_no_word_on_geforce() -> None:
    (found,) = ecc_off.judge(_with(Gpu(index=0, name="NVIDIA A100-SXM4-40GB", ecc_mode=False)))
    assert found.what == "ECC"
    assert ecc_off.severity is Severity.INFO
    silent = (Gpu(index=0, name="NVIDIA GeForce RTX 4090", ecc_mode=False), Gpu(index=1, name="NVIDIA T400"))
    assert list(ecc_off.judge(_with(*silent))) == []


def _persistence(host: Host | None, container: Container | None, *processes: GpuProcess) -> list[str]:
    board = Gpu(index=0, persistence_mode=False, processes=processes)
    machine = Snapshot(gpus=Gpus(boards=(board,)), host=host, container=container)
    return [found.where for found in persistence_off.judge(machine)]


def test_persistence_off_is_told_on_a_bare_linux() -> None:
    assert _persistence(LINUX, Container()) == ["GPU 0"]


def test_persistence_is_no_matter_where_it_cannot_be_set() -> None:
    assert _persistence(msgspec.structs.replace(LINUX, wsl=True), Container()) == []
    assert _persistence(Host(system="Windows"), Container()) == []
    assert _persistence(LINUX, Container(kind="docker")) == []
    assert _persistence(LINUX, Container(), GpuProcess(pid=1, kind="graphics")) == []
    assert _persistence(None, Container()) == []
