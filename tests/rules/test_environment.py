"""Launch variables of CUDA and torch."""

from typing import Any

import pytest

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus, MigInstance
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.findings import Evidence, Rule
from gpudoctor.rules.environment import (
    alloc_conf_invalid,
    debug_left_on,
    fastest_first_order,
    launch_blocking,
    visible_devices_invalid,
)
from gpudoctor.snapshot import Snapshot

UUID = "GPU-{}8f6a2c-1111-2222-3333-444444444444"
TWO = Gpus(boards=tuple(Gpu(index=index, name="H100", uuid=UUID.format(f"a{index}")) for index in range(2)))


def _found(asked: Rule[Snapshot], gpus: Any = TWO, torch: Any = None, **variables: str) -> list[Evidence]:
    return list(asked.judge(Snapshot(gpus=gpus, torch=torch, environment=Environment(variables=variables))))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("2", "0 to 1"),
        ("0,1,2", "0 to 1"),
        ("0,0", "0 once"),
        ("", "unset"),
        ("-1", "unset"),
        ("NoDevFiles", "Slurm gave this job no GPU"),
        ("0,-1,1", "indices or UUIDs"),
        ("0,,1", "indices or UUIDs"),
        ("all", "indices or UUIDs"),
        ("0;1", "indices or UUIDs"),
        ("0 1", "indices or UUIDs"),
        ("cuda:0", "indices or UUIDs"),
        ("GPU-ffff", "fits 0"),
        ("GPU-a", "fits 2"),
        (f"{UUID.format('a0')},{UUID.format('a0')}", "once"),
    ],
)
def test_a_list_cuda_cannot_use_is_an_error(value: str, wanted: str) -> None:
    (found,) = _found(visible_devices_invalid, CUDA_VISIBLE_DEVICES=value)
    assert wanted in found.wanted
    assert value in found.seen


@pytest.mark.parametrize("value", ["0", "1,0", "0, 1", "0,1,", "0,1,-1", "GPU-a0", "GPU-A0", UUID.format("a1")])
def test_a_list_cuda_takes_is_none(value: str) -> None:
    assert _found(visible_devices_invalid, CUDA_VISIBLE_DEVICES=value) == []


def test_an_unset_list_is_fine() -> None:
    assert _found(visible_devices_invalid) == []


def test_hiding_all_gpus_is_meant_where_the_policy_or_torch_is_for_cpus() -> None:
    hidden = Environment(variables={"CUDA_VISIBLE_DEVICES": ""})
    meant = Snapshot(gpus=TWO, environment=hidden, expected=Expected(device="cpu"))
    assert list(visible_devices_invalid.judge(meant)) == []
    assert _found(visible_devices_invalid, torch=TorchBuild(build="cpu"), CUDA_VISIBLE_DEVICES="") == []


def test_hiding_is_no_finding_where_no_gpu_is_known() -> None:
    for gpus in (None, Gpus(boards=())):
        assert _found(visible_devices_invalid, gpus=gpus, CUDA_VISIBLE_DEVICES="") == []
        assert _found(visible_devices_invalid, gpus=gpus, CUDA_VISIBLE_DEVICES="5") == []


def test_hiding_is_a_finding_where_the_policy_wants_gpus() -> None:
    machine = Snapshot(environment=Environment(variables={"CUDA_VISIBLE_DEVICES": "-1"}), expected=Expected(gpus=8))
    assert len(list(visible_devices_invalid.judge(machine))) == 1


def test_uuids_replaced_by_stand_ins_are_not_judged() -> None:
    redacted = Gpus(boards=(Gpu(index=0, uuid="GPU-1"), Gpu(index=1, uuid="GPU-2")))
    assert _found(visible_devices_invalid, gpus=redacted, CUDA_VISIBLE_DEVICES="GPU-a0") == []


def test_with_mig_indices_are_not_judged_and_instances_are() -> None:
    instance = "MIG-b18f6a2c-1111-2222-3333-444444444444"
    mig = Gpus(boards=(Gpu(index=0, mig_mode=True, mig_instances=(MigInstance(uuid=instance),)),))
    assert _found(visible_devices_invalid, gpus=mig, CUDA_VISIBLE_DEVICES="3") == []
    assert _found(visible_devices_invalid, gpus=mig, CUDA_VISIBLE_DEVICES=instance) == []
    assert len(_found(visible_devices_invalid, gpus=mig, CUDA_VISIBLE_DEVICES="MIG-ffff")) == 1


def test_launch_blocking_speaks() -> None:
    (found,) = _found(launch_blocking, CUDA_LAUNCH_BLOCKING="1")
    assert found.seen == "1"


def test_launch_blocking_is_quiet_at_zero_and_where_no_gpu_is_meant() -> None:
    assert _found(launch_blocking, CUDA_LAUNCH_BLOCKING="0") == []
    assert _found(launch_blocking) == []
    meant = Snapshot(expected=Expected(device="cpu"), environment=Environment(variables={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert list(launch_blocking.judge(meant)) == []


def test_launch_variables_are_judged_on_a_login_node_too() -> None:
    """They travel with the job to the nodes that have GPUs."""
    login = Snapshot(driver=Driver(pci_gpus=0), environment=Environment(variables={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert len(list(launch_blocking.judge(login))) == 1


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("max_split_size_mb:10", "20 or more"),
        ("max_split_size_mb=128", "option:value"),
        ("max_split_size_mb", "option:value"),
        ("max_split_size_mb:", "option:value"),
        ("expandable_segments:true", "capitalised"),
        ("expandable_segments:True;max_split_size_mb:64", "capitalised"),
        ("expandeable_segments:True", "expandable_segments"),
        ('"expandable_segments:True"', "expandable_segments"),
        ("garbage_collection_threshold:1.0", "less than 1.0"),
        ("backend:cudamallocasync", "native or cudaMallocAsync"),
    ],
)
def test_settings_torch_refuses_are_errors(value: str, wanted: str) -> None:
    """Each was tried on torch 2.13."""
    (found,) = _found(alloc_conf_invalid, PYTORCH_CUDA_ALLOC_CONF=value)
    assert wanted in found.wanted
    assert found.confidence == "certain"
    assert len(_found(alloc_conf_invalid, PYTORCH_ALLOC_CONF=value)) == 1


@pytest.mark.parametrize(
    "value",
    [
        "",
        "expandable_segments: True",
        "max_split_size_mb:128,",
        "max_split_size_mb:128,expandable_segments:True",
        "roundup_power2_divisions:[256:1,512:2,>:8],garbage_collection_threshold:0.8",
        "backend:cudaMallocAsync",
        "pinned_use_background_threads:False,per_process_memory_fraction:0.9",
    ],
)
def test_settings_torch_takes_are_fine(value: str) -> None:
    assert _found(alloc_conf_invalid, PYTORCH_CUDA_ALLOC_CONF=value) == []


def test_an_option_that_resembles_none_may_be_newer_than_the_table() -> None:
    (found,) = _found(alloc_conf_invalid, PYTORCH_ALLOC_CONF="quantum_pools:True")
    assert found.confidence == "likely"


def test_expandable_segments_are_unknown_to_torch_2_0() -> None:
    setting = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    (found,) = _found(alloc_conf_invalid, torch=TorchBuild(build="cuda", version="2.0.1+cu118"), **setting)
    assert "2.1" in found.wanted
    assert _found(alloc_conf_invalid, torch=TorchBuild(build="cuda", version="2.10.0+cu128"), **setting) == []


def test_the_allocators_settings_do_not_matter_to_rocm() -> None:
    assert _found(alloc_conf_invalid, torch=TorchBuild(build="rocm"), PYTORCH_CUDA_ALLOC_CONF="x") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_DEBUG", "trace"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        ("TORCH_SHOW_CPP_STACKTRACES", "1"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ],
)
def test_debugging_left_on_speaks(name: str, value: str) -> None:
    (found,) = _found(debug_left_on, **{name: value})
    assert (found.where, found.seen) == (name, value)


def test_debugging_left_on_is_quiet_for_what_costs_nothing() -> None:
    assert (
        _found(debug_left_on, NCCL_DEBUG="INFO", TORCH_DISTRIBUTED_DEBUG="INFO", TORCH_SHOW_CPP_STACKTRACES="0") == []
    )
    assert _found(debug_left_on) == []


def test_debugging_left_on_in_a_configuration_file_counts() -> None:
    machine = Snapshot(environment=Environment(nccl_config={"NCCL_DEBUG": "TRACE"}))
    assert len(list(debug_left_on.judge(machine))) == 1


def test_fastest_first_matters_with_unlike_boards_alone() -> None:
    unlike = Gpus(boards=(Gpu(index=0, name="RTX 2080"), Gpu(index=1, name="RTX 4090")))
    assert len(_found(fastest_first_order, gpus=unlike)) == 1
    assert _found(fastest_first_order, gpus=unlike, CUDA_DEVICE_ORDER="PCI_BUS_ID") == []
    assert _found(fastest_first_order) == []
    assert _found(fastest_first_order, gpus=Gpus(boards=(Gpu(index=0), Gpu(index=1, name="RTX 4090")))) == []
