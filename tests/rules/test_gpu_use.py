"""Rules on whether the GPUs are there and free for a job."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, GpuProcess, Gpus, MigInstance
from gpudoctor.facts.host import Host
from gpudoctor.facts.shm import Shm
from gpudoctor.facts.torch import TorchRuntime
from gpudoctor.findings import Severity
from gpudoctor.rules.gpu_use import (
    busy_gpu,
    exclusive_compute_mode,
    gpus_missing,
    memory_held_by_nobody,
    mig_without_instance,
    mixed_gpus,
)
from gpudoctor.snapshot import Snapshot

MIB, GIB = 2**20, 2**30
HELD = Gpu(index=1, memory_used_bytes=540 * MIB, memory_reserved_bytes=610 * MIB, processes=())
BARE = Snapshot(host=Host(system="Linux", wsl=False), container=Container(), environment=Environment())


def _with(*boards: Gpu, machine: Snapshot = BARE, **gpus: object) -> Snapshot:
    return msgspec.structs.replace(machine, gpus=Gpus(boards=boards, **gpus))  # type: ignore[arg-type]


def _seeing(visible: str) -> Snapshot:
    return msgspec.structs.replace(BARE, environment=Environment(variables={"CUDA_VISIBLE_DEVICES": visible}))


# GPU012


def test_memory_without_a_process_is_told() -> None:
    (found,) = memory_held_by_nobody.judge(_with(Gpu(index=0, processes=()), HELD))
    assert (found.where, found.seen, found.confidence) == ("GPU 1", "540 MiB", "likely")


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_reserved_bytes": None},
        {"processes": None},
        {"processes": (GpuProcess(pid=1),)},
        {"memory_used_bytes": 250 * MIB},
        {"memory_used_bytes": None},
        {"mig_mode": True},
        {"virtualization": "vgpu"},
        {"virtualization": "host_vgpu"},
        {"memory_node": 2},
    ],
)
def test_memory_is_nobodys_only_where_all_would_be_shown(fields: dict[str, object]) -> None:
    assert list(memory_held_by_nobody.judge(_with(msgspec.structs.replace(HELD, **fields)))) == []


@pytest.mark.parametrize(
    "machine",
    [
        msgspec.structs.replace(BARE, container=Container(kind="docker")),
        msgspec.structs.replace(BARE, container=None),
        msgspec.structs.replace(BARE, host=Host(system="Linux", wsl=True)),
        msgspec.structs.replace(BARE, host=None),
        msgspec.structs.replace(BARE, shm=Shm(shared_unseen=True)),
    ],
)
def test_memory_is_nobodys_only_where_all_can_be_seen(machine: Snapshot) -> None:
    assert list(memory_held_by_nobody.judge(_with(HELD, machine=machine))) == []


def test_memory_of_a_paste_or_of_a_list_that_was_refused_is_not_judged() -> None:
    assert list(memory_held_by_nobody.judge(_with(HELD, source="nvidia-smi"))) == []
    assert list(memory_held_by_nobody.judge(_with(HELD, unread={"processes": "needs root"}))) == []


# GPU013

JOB = GpuProcess(pid=900, name="python", memory_bytes=20 * GIB)


def test_a_job_of_others_on_a_gpu_is_told() -> None:
    (found,) = busy_gpu.judge(_with(Gpu(index=0, processes=(JOB,)), Gpu(index=1, processes=())))
    assert (found.where, found.seen) == ("GPU 0", "python 900 (20 GiB)")


@pytest.mark.parametrize(
    "fields",
    [
        {"ours": True},
        {"kind": "graphics"},
        {"memory_bytes": 0},
        {"memory_bytes": None},
        {"name": "nvidia-cuda-mps"},
    ],
)
def test_what_is_no_job_of_others_is_not(fields: dict[str, object]) -> None:
    board = Gpu(index=0, processes=(msgspec.structs.replace(JOB, **fields),))
    assert list(busy_gpu.judge(_with(board))) == []


def test_a_gpu_that_the_job_will_not_use_may_be_busy() -> None:
    boards = tuple(Gpu(index=index, name="H100", processes=(JOB,) if index == 0 else ()) for index in range(4))
    assert list(busy_gpu.judge(_with(*boards, machine=_seeing("1,2,3")))) == []
    assert len(list(busy_gpu.judge(_with(*boards, machine=_seeing("0,1"))))) == 1


def test_slices_pastes_and_unknown_processes_are_not_judged() -> None:
    assert list(busy_gpu.judge(_with(Gpu(index=0, processes=(JOB,), mig_mode=True)))) == []
    assert list(busy_gpu.judge(_with(Gpu(index=0, processes=(JOB,)), source="text"))) == []
    assert list(busy_gpu.judge(_with(Gpu(index=0)))) == []


# GPU014


def test_an_exclusive_gpu_is_told_unless_mps_is_its_process() -> None:
    exclusive = Gpu(index=0, compute_mode="exclusive_process")
    (found,) = exclusive_compute_mode.judge(_with(exclusive))
    assert (found.seen, found.severity) == ("exclusive process", None)
    server = GpuProcess(pid=5, name="nvidia-cuda-mps", memory_bytes=30 * MIB)
    assert list(exclusive_compute_mode.judge(_with(msgspec.structs.replace(exclusive, processes=(server,))))) == []
    assert list(exclusive_compute_mode.judge(_with(Gpu(index=0, compute_mode="default"), Gpu(index=1)))) == []


# GPU015


def test_mig_without_an_instance_is_told() -> None:
    (found,) = mig_without_instance.judge(_with(Gpu(index=0, mig_mode=True)))
    assert found.where == "GPU 0"


def test_mig_with_an_instance_or_off_or_unknown_is_not() -> None:
    sliced = Gpu(index=0, mig_mode=True, mig_instances=(MigInstance(uuid="MIG-0"),))
    assert list(mig_without_instance.judge(_with(sliced, Gpu(index=1, mig_mode=False), Gpu(index=2)))) == []
    empty = Gpu(index=1, mig_mode=True)
    assert list(mig_without_instance.judge(_with(empty, unread={"mig_instances": "needs root"}))) == []
    assert list(mig_without_instance.judge(_with(empty, source="text"))) == []
    inside = msgspec.structs.replace(BARE, container=Container(kind="docker"))
    assert list(mig_without_instance.judge(_with(sliced, empty, machine=inside))) == []


# GPU016


def _named(*names: str, memory_gib: int = 24) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, name=name, memory_total_bytes=memory_gib * GIB) for index, name in enumerate(names))


def test_mixed_models_are_told_and_an_info_where_there_is_one_of_each() -> None:
    (found,) = mixed_gpus.judge(_with(*_named("V100", "V100", "RTX 8000")))
    assert (found.severity, found.seen) == (None, "V100: GPU 0, 1; RTX 8000: GPU 2")
    (found,) = mixed_gpus.judge(_with(*_named("V100", "RTX 8000")))
    assert found.severity is Severity.INFO


def test_mixed_models_are_judged_among_the_visible_ones() -> None:
    boards = tuple(
        msgspec.structs.replace(board, uuid=f"GPU-{board.index}") for board in _named("V100", "V100", "RTX 8000")
    )
    assert list(mixed_gpus.judge(_with(*boards, machine=_seeing("GPU-0,GPU-1")))) == []
    # Numbers of unlike boards follow an order that is not known here.
    assert list(mixed_gpus.judge(_with(*boards, machine=_seeing("0,1")))) == []


def test_a_display_card_and_slices_are_no_mixture() -> None:
    display = Gpu(index=2, name="NVIDIA T400", memory_total_bytes=2 * GIB)
    assert list(mixed_gpus.judge(_with(*_named("A6000", "A6000"), display))) == []
    sliced = Gpu(index=2, name="A100", memory_total_bytes=40 * GIB, mig_mode=True)
    assert list(mixed_gpus.judge(_with(*_named("H100", "H100"), sliced))) == []
    assert list(mixed_gpus.judge(_with(Gpu(index=0), Gpu(index=1)))) == []


# GPU017


def _wanting(machine: Snapshot, **expected: object) -> Snapshot:
    return msgspec.structs.replace(machine, expected=Expected(**expected))  # type: ignore[arg-type]


def test_missing_gpus_are_told_and_lost_ones_do_not_count() -> None:
    boards = (*_named("H100", "H100", "H100"), Gpu(index=3, lost=True))
    (found,) = gpus_missing.judge(_wanting(_with(*boards), gpus=4))
    assert (found.seen, found.wanted) == ("3", "4")
    assert list(gpus_missing.judge(_wanting(_with(*boards), gpus=3))) == []


def test_another_model_than_the_policy_names_is_told() -> None:
    (found,) = gpus_missing.judge(_wanting(_with(*_named("NVIDIA H100 PCIe", "NVIDIA A100 80GB PCIe")), gpu="h100"))
    assert (found.where, found.seen) == ("GPU 1", "NVIDIA A100 80GB PCIe")


def test_without_a_policy_or_a_count_nothing_is_missing() -> None:
    assert list(gpus_missing.judge(_with())) == []
    assert list(gpus_missing.judge(_wanting(BARE, gpus=8))) == []
    runtime = msgspec.structs.replace(_with(Gpu(index=0, lost=True)), torch_runtime=TorchRuntime(device_count=1))
    assert list(gpus_missing.judge(_wanting(runtime, gpus=1))) == []
