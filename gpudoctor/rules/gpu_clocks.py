"""Rules on what holds a GPU's clocks down: heat, power, limits that somebody set."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.boards import boards, busy, idle, is_laptop, place
from gpudoctor.snapshot import Snapshot

NVML = "NVML API reference"
REASONS = f"{NVML}, nvmlClocksEventReasons"
NEAR_MOST = 0.95  # our bound: boards stay a few steps below their maximum for voltage and heat
FAR_BELOW = 0.7  # our bound, where the driver names no reason


@rule(
    "GPU008",
    "hardware-slowdown",
    Severity.WARNING,
    why="the board runs at half its clocks or less, and in a job of several it holds back all others",
    fix=Fix("look at the power supply, its cables and the chassis' power brake or cap"),
    confirm="nvidia-smi -q -d PERFORMANCE",
    source=REASONS,
)
def hardware_slowdown(machine: Snapshot) -> Iterator[Evidence]:
    """The hardware itself slows the board down, or the system pulls its power brake.

    Silent on idle boards (but for the brake, which the system pulls whatever the board does), and where heat is the
    reason (GPU009).
    """
    for board in boards(machine):
        reasons = set(board.throttle_reasons or ())
        if "hw_power_brake_slowdown" in reasons:
            yield Evidence(where=place(board), what="clocks", seen="power brake active", wanted="no slowdown")
        elif "hw_slowdown" in reasons and "hw_thermal_slowdown" not in reasons and not idle(board):
            yield Evidence(where=place(board), what="clocks", seen="hardware slowdown active", wanted="no slowdown")


@rule(
    "GPU009",
    "thermal-slowdown",
    Severity.WARNING,
    why="the board is too hot for its clocks, and in a job of several it holds back all others",
    fix=Fix("look at fans, air flow, dust and inlet temperature"),
    confirm="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    source=REASONS,
)
def thermal_slowdown(machine: Snapshot) -> Iterator[Evidence]:
    """Driver or hardware slow the board down for its temperature.

    Silent on idle boards.
    """
    for board in boards(machine):
        by = {"hw_thermal_slowdown": "the hardware", "sw_thermal_slowdown": "the driver"}
        active = [who for reason, who in by.items() if reason in (board.throttle_reasons or ())]
        if active and not idle(board):
            heat = f" at {board.temperature_c} °C" if board.temperature_c is not None else ""
            seen = f"slowed down by {' and '.join(active)}{heat}"
            yield Evidence(where=place(board), what="clocks", seen=seen, wanted="no slowdown")


@rule(
    "GPU010",
    "power-limit-lowered",
    Severity.WARNING,
    why="the board slows down under load to stay below the limit",
    fix=Fix("set the default limit with nvidia-smi -pl, unless the site lowered it on purpose", safety="needs root"),
    confirm="nvidia-smi -q -d POWER",
    source=f"{NVML}, nvmlDeviceGetEnforcedPowerLimit and nvmlDeviceGetPowerManagementDefaultLimit",
)
def power_limit_lowered(machine: Snapshot) -> Iterator[Evidence]:
    """The power limit in force is below the board's default by more than 1 W.

    Silent on laptops, where it moves with the fans and the battery.
    """
    for board in boards(machine):
        limit, default = board.power_limit_w, board.power_limit_default_w
        if limit is None or default is None or is_laptop(board) or not 0 < limit < default - 1:
            continue
        fix = Fix(
            "set the default limit, unless the site lowered it on purpose",
            f"sudo nvidia-smi -i {board.index} -pl {default:.0f}",
            safety="needs root",
        )
        yield Evidence(
            where=place(board), what="power limit", seen=f"{limit:.0f} W", wanted=f"{default:.0f} W", fix=(fix,)
        )


@rule(
    "GPU011",
    "clocks-capped",
    Severity.WARNING,
    why="the board cannot reach its clocks, and in a job of several it holds back all others",
    fix=Fix("give the clocks back to the driver", "sudo nvidia-smi -rgc; sudo nvidia-smi -rac", safety="needs root"),
    confirm="nvidia-smi -q -d CLOCK,PERFORMANCE (under load)",
    source=f"{REASONS}, ApplicationsClocksSetting; the bounds are ours",
)
def clocks_capped(machine: Snapshot) -> Iterator[Evidence]:
    """Under load, application clocks below the board's default hold it down, or (likely) locked clocks do: it runs
    below 70 % of its maximum and the driver names no reason.

    Silent at idle, and for application clocks at the board's own default, beyond which it boosts by itself.
    """
    for board in boards(machine):
        now, most = board.clock_sm_mhz, board.clock_sm_max_mhz
        if not busy(board) or idle(board) or now is None or not most or now >= NEAR_MOST * most:
            continue
        held, default = board.clock_application_mhz, board.clock_application_default_mhz
        told = "applications_clocks_setting" in (board.throttle_reasons or ()) and held != default
        lowered = held is not None and default is not None and held < default
        unexplained = board.throttle_reasons == () and now < FAR_BELOW * most
        if told or lowered or unexplained:
            yield Evidence(
                where=place(board),
                what="SM clock under load",
                seen=f"{now} MHz" + (f", application clock {held} MHz" if lowered else ""),
                wanted=f"{most} MHz",
                confidence="certain" if told or lowered else "likely",
            )


@rule(
    "GPU022",
    "at-power-limit",
    Severity.INFO,
    why="the board runs as fast as its power limit lets it, which is normal under full load",
    fix=Fix("nothing to do, unless the limit was lowered (GPU010)"),
    confirm="nvidia-smi -q -d PERFORMANCE,POWER",
    source=f"{REASONS}, SwPowerCap",
    because=("GPU010",),
)
def at_power_limit(machine: Snapshot) -> Iterator[Evidence]:
    """The software power cap is active.

    Silent on idle boards.
    """
    for board in boards(machine):
        if "sw_power_cap" in (board.throttle_reasons or ()) and not idle(board):
            watts = f"{board.power_w:.0f} W" if board.power_w is not None else "at the limit"
            limit = f"below {board.power_limit_w:.0f} W" if board.power_limit_w is not None else "below the limit"
            yield Evidence(where=place(board), what="power", seen=watts, wanted=limit)


RULES: tuple[Rule[Snapshot], ...] = (
    hardware_slowdown,
    thermal_slowdown,
    power_limit_lowered,
    clocks_capped,
    at_power_limit,
)
