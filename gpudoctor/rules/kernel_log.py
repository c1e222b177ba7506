"""Rules on Xids, the driver's reports of faults in the kernel log."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.kernel_log import XidEvent
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import xid
from gpudoctor.tables.xid import Fault

FALLEN_OFF_THE_BUS, RECOVERY_ACTION_CHANGED = 79, 154
DAY_S = 86400.0


@rule(
    "GPU005",
    "hardware-xid",
    Severity.ERROR,
    why="the driver reported a fault of the board or its links: jobs on it fail, hang or compute wrong numbers",
    fix=Fix("drain the node and reset the board", "sudo nvidia-smi --gpu-reset", safety="destructive"),
    confirm="sudo dmesg | grep Xid",
    source="NVIDIA Xid catalogue",
)
def hardware_xid(machine: Snapshot) -> Iterator[Evidence]:
    """The kernel log holds an Xid that calls for a reset, a reboot or a repair of the board.

    A warning where the board may work on until its next reset (63), and for an Xid of more than a day ago on a board
    that NVML reads without trouble, since drivers before r570 log no reset. Silent for Xids before the driver's own
    word that no action is left (154), for 79 (GPU007) and whatever came after it on that board.
    """
    for bus_id, events in _by_board(machine).items():
        faults = [(event, fault) for event, fault in events if fault.verdict in {"isolate", "service"}]
        board = _board(machine, bus_id)
        settled = all(_settled(event, fault, board) for event, fault in faults)
        for code in dict.fromkeys(event.xid for event, _ in faults):
            same = [(event, fault) for event, fault in faults if event.xid == code]
            event, fault = same[-1]
            yield Evidence(
                where=_where(bus_id, board),
                what=f"Xid {code}{_times(len(same))}{_ago(event)}",
                seen=event.text or fault.meaning,
                wanted="none",
                severity=Severity.WARNING if settled else None,
                fix=(_action(code, fault, bus_id),),
            )


@rule(
    "GPU006",
    "application-xid",
    Severity.INFO,
    why="a program did something the GPU refused; the board is fine unless unlike programs fail on it alone",
    fix=Fix("look at the program, whose own error text names the call", "sudo dmesg | grep Xid", safety="needs root"),
    confirm="sudo dmesg | grep Xid",
    source="NVIDIA Xid catalogue; NVIDIA Kubernetes device plugin, Xids that leave a device healthy",
)
def application_xid(machine: Snapshot) -> Iterator[Evidence]:
    """The kernel log holds an Xid that programs cause, such as 13, 31, 43 or 45.

    Silent on a board with a hardware Xid, which takes the programs down with it.
    """
    lost = {event.pci_bus_id for event in _events(machine) if event.xid == FALLEN_OFF_THE_BUS}
    for bus_id, events in _by_board(machine).items():
        if bus_id in lost or any(fault.verdict == "isolate" for _, fault in events):
            continue
        ours = [(event, fault) for event, fault in events if fault.verdict == "application"]
        for code in dict.fromkeys(event.xid for event, _ in ours):
            same = [(event, fault) for event, fault in ours if event.xid == code]
            event, fault = same[-1]
            process = f"{event.process or 'process'} ({event.pid}): " if event.pid is not None else ""
            yield Evidence(
                where=_where(bus_id, _board(machine, bus_id)),
                what=f"Xid {code}{_times(len(same))}{_ago(event)}",
                seen=f"{process}{fault.meaning}",
                wanted="none",
                fix=(Fix(fault.action),),
            )


def _events(machine: Snapshot) -> tuple[XidEvent, ...]:
    return machine.kernel_log.xids if machine.kernel_log is not None else ()


def _by_board(machine: Snapshot) -> dict[str | None, list[tuple[XidEvent, Fault]]]:
    """Events of each board that still count, with what the table says of them."""
    boards: dict[str | None, list[tuple[XidEvent, Fault]]] = {}
    lost: set[str | None] = set()
    for event in _events(machine):
        events = boards.setdefault(event.pci_bus_id, [])
        if event.xid == RECOVERY_ACTION_CHANGED and "(none)" in (event.text or "").lower().rpartition(" to ")[2]:
            events.clear()
        elif event.xid == FALLEN_OFF_THE_BUS:
            lost.add(event.pci_bus_id)
        elif event.pci_bus_id not in lost:
            events.append((event, xid.fault(event.xid, event.text)))
    return boards


def _board(machine: Snapshot, bus_id: str | None) -> Gpu | None:
    """NVML writes the domain with eight digits and adds the function; the kernel log does neither."""
    place = _place(bus_id)
    boards = machine.gpus.boards if machine.gpus is not None else ()
    return next((gpu for gpu in boards if place is not None and _place(gpu.pci_bus_id) == place), None)


def _place(bus_id: str | None) -> tuple[int, ...] | None:
    """Domain, bus, device."""
    try:
        return tuple(int(part, 16) for part in (bus_id or "").split(".")[0].split(":"))
    except ValueError:
        return None


def _settled(event: XidEvent, fault: Fault, board: Gpu | None) -> bool:
    """No reason to keep jobs off the board now."""
    if fault.verdict == "service":
        return True
    fine = board is not None and not board.lost and board.error is None and board.recovery_action in {None, "none"}
    return fine and event.age_s is not None and event.age_s > DAY_S


def _action(code: int, fault: Fault, bus_id: str | None) -> Fix:
    """The table's, with the command where it is a reset."""
    reset = f"sudo nvidia-smi --gpu-reset -i {bus_id}.0" if bus_id and "reset the GPU" in fault.action else None
    return Fix(f"Xid {code}, {fault.meaning}: {fault.action}", reset, "destructive" if reset else "needs root")


def _where(bus_id: str | None, board: Gpu | None) -> str:
    return f"GPU {board.index}" if board is not None else f"GPU {bus_id}" if bus_id else "GPU"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _ago(event: XidEvent) -> str:
    """` 3 h ago`; empty where the log has no times."""
    if event.age_s is None:
        return ""
    for unit, seconds in (("days", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if event.age_s >= 2 * seconds or (unit == "min" and event.age_s >= seconds):
            return f", {event.age_s / seconds:.0f} {unit} ago"
    return f", {event.age_s:.0f} s ago"


RULES: tuple[Rule[Snapshot], ...] = (hardware_xid, application_xid)
