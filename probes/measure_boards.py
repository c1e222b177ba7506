"""The boards that are measured: which they are, whether others use them, what NVML says of them while they work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.measured import Load
from gpudoctor.probes import gpu as gpu_probe
from gpudoctor.probes.nvml import Nvml, started
from gpudoctor.probes.system import NotRead, System

LOOKS, LOOK_AGAIN_S = 3, 0.5
HELD_BYTES = 2**30
"""Memory in use on a board before we touch it: in a container the process that holds it is not to be seen."""


@dataclass(frozen=True)
class Device:
    """One GPU by torch's number, and the board it is."""

    number: int
    board: Gpu | None = None
    handle: Any = None
    """NVML's, to look at it while it works."""

    @property
    def index(self) -> int:
        """As the facts name it."""
        return self.board.index if self.board is not None else self.number


@contextmanager
def nvml_if_any(system: System) -> Iterator[Nvml | None]:
    """None where there is none."""
    with ExitStack() as stack:
        nvml = None
        with suppress(NotRead):
            nvml = stack.enter_context(started(system))
        yield nvml


def untouched(system: System, nvml: Nvml | None) -> dict[str, tuple[Gpu, Any]]:
    """UUID → the board as it is before we work on it, and NVML's handle; empty without NVML."""
    if nvml is None:
        return {}
    found: dict[str, tuple[Gpu, Any]] = {}
    # The smoke test of the default check has just ended, and the driver may list it for a moment.
    for _ in range(LOOKS):
        with suppress(NotRead):
            handles = nvml.handles()
            boards = gpu_probe.boards(nvml, system).boards
            found = {_bare(board.uuid): (board, handles[board.index]) for board in boards if board.uuid}
        if not any(used_by_others(board) for board, _ in found.values()):
            break
        time.sleep(LOOK_AGAIN_S)
    return found


def _bare(uuid: str | None) -> str:
    return (uuid or "").removeprefix("GPU-").lower()


def devices_of(found: dict[str, Any], boards: dict[str, tuple[Gpu, Any]]) -> list[Device]:
    """In torch's order."""
    devices = []
    for number, uuid in enumerate(found["uuids"]):
        known = boards.get(_bare(uuid))
        if known is None and not uuid and len(boards) == len(found["uuids"]) == 1:
            known = next(iter(boards.values()))  # A torch that does not tell UUIDs, and no doubt which board it is.
        devices.append(Device(number, *known) if known else Device(number))
    return devices


def used_by_others(board: Gpu) -> str | None:
    """Who, in a clause; None for nobody."""
    others = [
        item for item in board.processes or () if item.kind == "compute" and not item.ours and item.memory_bytes != 0
    ]
    if others:
        named = ", ".join(f"{item.name or 'pid'} {item.pid}" for item in others[:3])
        return f"in use by {named}" + (" and more" if len(others) > 3 else "")
    ours = any(item.ours for item in board.processes or ())
    if not ours and board.memory_node is None and (board.memory_used_bytes or 0) > HELD_BYTES:
        return f"{board.memory_used_bytes or 0:,} bytes in use by a process that is not to be seen"
    return None


def look(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """One look at a board. Raises BoardLost."""
    mask = nvml.first(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), handle)
    use = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    return {
        "pcie_generation": nvml.whole("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_width": nvml.whole("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "clock_sm_mhz": nvml.whole("nvmlDeviceGetClockInfo", handle, gpu_probe.SM_CLOCK),
        "power_w": nvml.ask("nvmlDeviceGetPowerUsage", handle),
        "temperature_c": nvml.whole("nvmlDeviceGetTemperature", handle, 0),
        "reasons": None if mask is None else {name for bit, name in gpu_probe.THROTTLE_REASONS.items() if mask & bit},
        "use": None if use is None else use.gpu,
    }


def load(gpu: int, stage: str, looks: list[dict[str, Any]]) -> Load:
    """What all looks together say. Those taken while the board still idled say nothing of a load."""
    from statistics import median

    at_work = [look for look in looks if "gpu_idle" not in (look.get("reasons") or ())] or looks

    def most(name: str) -> Any:
        return max((look[name] for look in at_work if look.get(name) is not None), default=None)

    clocks = [look["clock_sm_mhz"] for look in at_work if look.get("clock_sm_mhz") is not None]
    power_mw = most("power_w")
    told = [look["reasons"] for look in at_work if look.get("reasons") is not None]
    return Load(
        gpu=gpu,
        stage=stage,
        pcie_generation=most("pcie_generation"),
        pcie_width=most("pcie_width"),
        clock_sm_mhz=int(median(clocks)) if clocks else None,
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=most("temperature_c"),
        throttle_reasons=tuple(sorted(set().union(*told) - {"gpu_idle"})) if told else None,
    )
