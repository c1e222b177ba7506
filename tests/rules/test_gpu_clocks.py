"""Rules on what holds a GPU's clocks down."""

import msgspec
import pytest

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.findings import Evidence, Rule
from gpudoctor.rules.gpu_clocks import (
    at_power_limit,
    clocks_capped,
    hardware_slowdown,
    power_limit_lowered,
    thermal_slowdown,
)
from gpudoctor.snapshot import Snapshot

BUSY = Gpu(
    index=0,
    performance_state=0,
    utilization_ratio=1.0,
    clock_sm_mhz=1200,
    clock_sm_max_mhz=1980,
    throttle_reasons=("sw_power_cap",),
)


def _said(asked: Rule[Snapshot], board: Gpu, **fields: object) -> list[Evidence]:
    return list(asked.judge(Snapshot(gpus=Gpus(boards=(msgspec.structs.replace(board, **fields),)))))


@pytest.mark.parametrize(
    ("reasons", "codes"),
    [
        (("hw_slowdown",), {"GPU008"}),
        (("hw_power_brake_slowdown", "hw_slowdown"), {"GPU008"}),
        (("hw_slowdown", "hw_thermal_slowdown"), {"GPU009"}),
        (("sw_thermal_slowdown",), {"GPU009"}),
        (("sw_power_cap",), {"GPU022"}),
        (("sync_boost",), set()),
        ((), set()),
        # Idle boards show all sorts; only the brake is the system's doing.
        (("gpu_idle", "hw_slowdown"), set()),
        (("gpu_idle", "sw_power_cap", "sw_thermal_slowdown"), set()),
        (("gpu_idle", "hw_power_brake_slowdown"), {"GPU008"}),
        (None, set()),
    ],
)
def test_reasons_and_their_rules(reasons: tuple[str, ...] | None, codes: set[str]) -> None:
    asked = (hardware_slowdown, thermal_slowdown, at_power_limit)
    assert {rule.code for rule in asked if _said(rule, Gpu(index=0, throttle_reasons=reasons))} == codes


def test_a_lowered_power_limit_is_told_with_the_command_that_lifts_it() -> None:
    (found,) = _said(power_limit_lowered, Gpu(index=2, power_limit_w=500.0, power_limit_default_w=700.0))
    assert (found.seen, found.wanted) == ("500 W", "700 W")
    assert found.fix[0].command == "sudo nvidia-smi -i 2 -pl 700"


def test_power_limits_that_are_right_or_move_by_themselves() -> None:
    assert _said(power_limit_lowered, Gpu(index=0, power_limit_w=699.5, power_limit_default_w=700.0)) == []
    assert _said(power_limit_lowered, Gpu(index=0, power_limit_w=500.0)) == []
    laptop = Gpu(index=0, name="NVIDIA GeForce RTX 4070 Laptop GPU", power_limit_w=55.0, power_limit_default_w=100.0)
    assert _said(power_limit_lowered, laptop) == []


def test_application_clocks_below_the_default_cap_a_busy_board() -> None:
    (found,) = _said(clocks_capped, BUSY, clock_application_mhz=1200, clock_application_default_mhz=1980)
    assert (found.seen, found.confidence) == ("1200 MHz, application clock 1200 MHz", "certain")


def test_a_low_clock_without_any_reason_is_likely_locked() -> None:
    (found,) = _said(clocks_capped, BUSY, throttle_reasons=())
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"throttle_reasons": None},
        {"throttle_reasons": (), "clock_sm_mhz": 1500},
        {"clock_application_mhz": 585, "clock_application_default_mhz": 585},
        {"throttle_reasons": ("gpu_idle",), "clock_application_mhz": 800, "clock_application_default_mhz": 1980},
        {"performance_state": 8, "throttle_reasons": ()},
        {"utilization_ratio": 0.0, "throttle_reasons": ()},
        {"utilization_ratio": None, "throttle_reasons": ()},
        {"clock_sm_mhz": None, "throttle_reasons": ()},
        {"clock_sm_max_mhz": None, "throttle_reasons": ()},
        {"clock_sm_mhz": 1965, "clock_application_mhz": 1200, "clock_application_default_mhz": 1980},
    ],
)
def test_clocks_capped_is_quiet_at_idle_at_the_default_and_where_a_reason_is_named(fields: dict[str, object]) -> None:
    assert _said(clocks_capped, BUSY, **fields) == []
