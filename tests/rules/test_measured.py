"""Rates below those of the data sheet or of the other boards."""

from typing import Any

import msgspec
import pytest

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.measured import Measured
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.rules.measured import slow_gemm, slow_host_link, slow_memory
from gpudoctor.rules.pcie import slow_pcie_link
from gpudoctor.snapshot import Snapshot


def _with(machine: Snapshot, **fields: Any) -> Snapshot:
    assert machine.measured is not None
    return msgspec.structs.replace(machine, measured=msgspec.structs.replace(machine.measured, **fields))


def _scaled(machine: Snapshot, table: str, field: str, factor: float, *gpus: int) -> Snapshot:
    """That figure of these GPUs times a factor; of all for none."""
    rows = tuple(
        msgspec.structs.replace(row, **{field: getattr(row, field) * factor}) if not gpus or row.gpu in gpus else row
        for row in getattr(machine.measured, table)
    )
    return _with(machine, **{table: rows})


def _boards(machine: Snapshot, **fields: Any) -> Snapshot:
    assert machine.gpus is not None
    boards = tuple(msgspec.structs.replace(board, **fields) for board in machine.gpus.boards)
    return msgspec.structs.replace(machine, gpus=Gpus(boards=boards))


def _said(rule: Rule[Snapshot], machine: Snapshot) -> list[Evidence]:
    return list(rule.judge(machine))


@pytest.mark.parametrize("asked", MACHINE_RULES, ids=lambda asked: asked.code)
def test_no_rule_speaks_of_a_healthy_machine_that_was_made_to_work(asked: Rule[Snapshot], worked: Snapshot) -> None:
    spoken = [item for item in asked.judge(worked) if (item.severity or asked.severity) is not Severity.INFO]
    assert spoken == []


def test_one_slow_gpu_of_eight_is_named_with_the_rate_of_its_equals(worked: Snapshot) -> None:
    found = _said(slow_gemm, _scaled(worked, "gemm", "tflops", 0.7, 5))
    assert {item.where for item in found} == {"GPU 5"}
    bf16 = next(item for item in found if item.what.startswith("bf16"))
    assert (bf16.seen, bf16.wanted) == ("484 TFLOP/s", "about 678 TFLOP/s, as its equals here")
    assert bf16.confidence == "certain"


def test_what_held_the_clocks_down_meanwhile_is_told(worked: Snapshot) -> None:
    assert worked.measured is not None
    hot = tuple(
        msgspec.structs.replace(load, throttle_reasons=("hw_thermal_slowdown", "sw_power_cap"))
        if load.gpu == 2
        else load
        for load in worked.measured.loads
    )
    found = _said(slow_gemm, _with(_scaled(worked, "gemm", "tflops", 0.6, 2), loads=hot))
    assert found[0].what == "fp32 product (meanwhile hw_thermal_slowdown)"


def test_eight_gpus_that_are_all_slow_are_likely_so_by_the_data_sheet(worked: Snapshot) -> None:
    found = _said(slow_gemm, _scaled(worked, "gemm", "tflops", 0.5))
    assert {item.where for item in found} == {f"GPU {index}" for index in range(8)}
    assert {item.confidence for item in found} == {"likely"}
    assert next(item.wanted for item in found if item.what == "bf16 product") == "494 TFLOP/s or more"


@pytest.mark.parametrize(
    "fields",
    [
        {"mig_mode": True},
        {"virtualization": "vgpu"},
        {"power_limit_w": 350.0},
        {"name": "NVIDIA H100 80GB HBM3 Laptop GPU"},
        {"name": "NVIDIA of a later year"},
    ],
    ids=str,
)
def test_slow_products_and_memory_are_no_finding_where_less_is_to_be_expected(
    worked: Snapshot, fields: dict[str, Any]
) -> None:
    slow = _scaled(_scaled(worked, "gemm", "tflops", 0.3), "memory", "gb_s", 0.3)
    assert _said(slow_gemm, _boards(slow, **fields)) == []
    assert _said(slow_memory, _boards(slow, **fields)) == []


def test_boards_that_others_use_are_not_judged_nor_measured_against(worked: Snapshot) -> None:
    slow = _with(_scaled(worked, "gemm", "tflops", 0.3, 0, 1), shared=(0, 1))
    assert _said(slow_gemm, slow) == []


def test_without_nvml_no_rate_is_judged(worked: Snapshot) -> None:
    slow = msgspec.structs.replace(_scaled(worked, "gemm", "tflops", 0.1), gpus=None)
    assert [_said(rule, slow) for rule in (slow_gemm, slow_memory, slow_host_link)] == [[], [], []]


def test_a_slow_cpu_is_no_finding(worked: Snapshot) -> None:
    assert worked.measured is not None
    on_cpu = tuple(msgspec.structs.replace(row, gpu=None, tflops=0.001) for row in worked.measured.gemm)
    assert _said(slow_gemm, _with(worked, gemm=on_cpu)) == []


def test_slow_memory_is_judged_by_its_equals_and_by_the_data_sheet(worked: Snapshot) -> None:
    (one,) = _said(slow_memory, _scaled(worked, "memory", "gb_s", 0.8, 3))
    assert (one.where, one.confidence) == ("GPU 3", "certain")
    every = _said(slow_memory, _scaled(worked, "memory", "gb_s", 0.6))
    assert [(item.wanted, item.confidence) for item in every] == [("2,010 GB/s or more", "likely")] * 8


def test_a_host_link_below_half_of_what_pcie_carries_is_found_each_way(worked: Snapshot) -> None:
    found = _said(slow_host_link, _scaled(worked, "host_links", "gb_s", 0.4, 6))
    assert [(item.where, item.what) for item in found] == [
        ("GPU 6", "copy from pinned memory to the GPU"),
        ("GPU 6", "copy to the host, pinned memory"),
    ]
    assert found[0].seen == "22 GB/s"
    assert found[0].wanted == "31.5 GB/s or more (50% of its PCIe link)"
    assert found[0].confidence == "certain"


def test_in_a_virtual_machine_a_slow_host_link_is_likely(worked: Snapshot) -> None:
    guest = msgspec.structs.replace(worked, host=Host(system="Linux", virtual_machine=True))
    found = _said(slow_host_link, _scaled(guest, "host_links", "gb_s", 0.4, 6))
    assert {item.confidence for item in found} == {"likely"}


def test_host_links_of_boards_by_nvlink_c2c_or_of_unknown_lanes_are_not_judged(worked: Snapshot) -> None:
    slow = _scaled(worked, "host_links", "gb_s", 0.1)
    assert _said(slow_host_link, _boards(slow, memory_node=1)) == []
    assert _said(slow_host_link, _boards(slow, pcie_generation_max=None)) == []


def test_a_link_that_stays_slow_under_load_is_found(worked: Snapshot) -> None:
    assert worked.measured is not None
    loads = tuple(
        msgspec.structs.replace(load, pcie_generation=1) if load.gpu == 4 else load for load in worked.measured.loads
    )
    (found,) = _said(slow_pcie_link, _with(worked, loads=loads))
    assert (found.where, found.seen, found.wanted) == ("GPU 4", "1", "5")


def test_a_link_of_unknown_speed_under_load_is_no_finding(worked: Snapshot) -> None:
    assert worked.measured is not None
    loads = tuple(msgspec.structs.replace(load, pcie_generation=None) for load in worked.measured.loads)
    assert _said(slow_pcie_link, _with(worked, loads=loads)) == []


def test_nothing_measured_is_no_finding(worked: Snapshot) -> None:
    empty = msgspec.structs.replace(worked, measured=Measured())
    assert [_said(rule, empty) for rule in (slow_gemm, slow_memory, slow_host_link)] == [[], [], []]
