"""Xids: which are the board's, which the program's, which are settled."""

import pytest

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel_log import KernelLog, XidEvent
from gpudoctor.findings import Severity
from gpudoctor.rules.kernel_log import application_xid, hardware_xid
from gpudoctor.snapshot import Snapshot

BUS = "0000:9c:00"
DAY_S = 86400.0


def _machine(*events: XidEvent, boards: tuple[Gpu, ...] = ()) -> Snapshot:
    return Snapshot(kernel_log=KernelLog(xids=events), gpus=Gpus(boards=boards) if boards else None)


def _xid(number: int, text: str | None = None, bus: str = BUS, age_s: float | None = None) -> XidEvent:
    return XidEvent(xid=number, pci_bus_id=bus, text=text, age_s=age_s)


def test_hardware_xid_speaks_with_the_tables_action_and_the_board_it_is_on() -> None:
    board = Gpu(index=3, pci_bus_id="00000000:9C:00.0")
    (found,) = hardware_xid.judge(_machine(_xid(48, "double bit error", age_s=7200.0), boards=(board,)))
    assert (found.where, found.what, found.seen) == ("GPU 3", "Xid 48, 2 h ago", "double bit error")
    assert found.fix[0].command == "sudo nvidia-smi --gpu-reset -i 0000:9c:00.0"


def test_hardware_xid_counts_repeats_and_names_the_bus_where_nvml_is_silent() -> None:
    (found,) = hardware_xid.judge(_machine(_xid(119), _xid(119), _xid(119)))
    assert (found.where, found.what) == ("GPU 0000:9c:00", "Xid 119, 3 times")


def test_hardware_xid_tells_of_one_board_with_one_severity() -> None:
    found = list(hardware_xid.judge(_machine(_xid(48), _xid(63), _xid(94))))
    assert [(item.what, item.severity) for item in found] == [("Xid 48", None), ("Xid 63", None), ("Xid 94", None)]


def test_hardware_xid_only_warns_of_a_remapped_row_and_of_a_board_that_has_been_fine_since() -> None:
    (remapped,) = hardware_xid.judge(_machine(_xid(63)))
    assert remapped.severity is Severity.WARNING
    board = Gpu(index=0, pci_bus_id="00000000:9C:00.0", recovery_action="none")
    (old,) = hardware_xid.judge(_machine(_xid(74, age_s=3 * DAY_S), boards=(board,)))
    (new,) = hardware_xid.judge(_machine(_xid(74, age_s=60.0), boards=(board,)))
    assert (old.severity, new.severity) == (Severity.WARNING, None)


def test_hardware_xid_stays_an_error_on_a_board_that_is_lost_or_waits_for_its_reset() -> None:
    for board in (
        Gpu(index=0, pci_bus_id="00000000:9C:00.0", lost=True),
        Gpu(index=0, pci_bus_id="00000000:9C:00.0", recovery_action="gpu_reset"),
    ):
        (found,) = hardware_xid.judge(_machine(_xid(74, age_s=3 * DAY_S), boards=(board,)))
        assert found.severity is None


def test_hardware_xid_is_quiet_after_the_drivers_word_that_no_action_is_left() -> None:
    done = _xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    needed = _xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    assert list(hardware_xid.judge(_machine(_xid(119), needed, done))) == []
    assert len(list(hardware_xid.judge(_machine(_xid(119), needed)))) == 1
    assert len(list(hardware_xid.judge(_machine(_xid(119), done, _xid(119))))) == 1


def test_hardware_xid_leaves_the_lost_board_to_gpu007_and_tells_of_what_came_before() -> None:
    (found,) = hardware_xid.judge(_machine(_xid(48), _xid(79), _xid(119), _xid(154, "… to 0x2 (Node Reboot Required)")))
    assert found.what == "Xid 48"
    assert list(application_xid.judge(_machine(_xid(79), _xid(45)))) == []


@pytest.mark.parametrize("number", [13, 31, 43, 45, 37, 154, 99999])
def test_hardware_xid_is_quiet_on_programs_and_notes(number: int) -> None:
    assert list(hardware_xid.judge(_machine(_xid(number)))) == []


def test_hardware_xid_is_quiet_without_a_log() -> None:
    assert list(hardware_xid.judge(Snapshot(kernel_log=KernelLog()))) == []
    assert list(hardware_xid.judge(_machine(_xid(149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 06")))) == []


def test_application_xid_names_the_program() -> None:
    event = XidEvent(xid=31, pci_bus_id=BUS, text="Ch 00000008", pid=4711, process="python3")
    (found,) = application_xid.judge(_machine(event))
    assert found.seen == "python3 (4711): a program touched GPU memory that is not mapped"
    assert application_xid.severity is Severity.INFO


def test_application_xid_is_quiet_on_the_board_that_broke_and_speaks_of_another() -> None:
    machine = _machine(_xid(48), _xid(45), _xid(13, bus="0000:1a:00"))
    (found,) = application_xid.judge(machine)
    assert found.where == "GPU 0000:1a:00"


def test_application_xid_is_quiet_without_a_log() -> None:
    assert list(application_xid.judge(Snapshot(kernel_log=KernelLog()))) == []
    assert list(application_xid.judge(_machine(_xid(154)))) == []


def test_boards_whose_bus_id_nobody_can_read_are_told_by_it() -> None:
    (found,) = hardware_xid.judge(_machine(_xid(48, bus="elsewhere"), boards=(Gpu(index=0, pci_bus_id=None),)))
    assert found.where == "GPU elsewhere"
