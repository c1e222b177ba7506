"""What to ask for next."""

import msgspec

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel_log import KernelLog, XidEvent
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.readers.next_output import commands
from gpudoctor.snapshot import Snapshot


def test_an_xid_asks_for_the_boards_memory_errors() -> None:
    assert commands(Snapshot(kernel_log=KernelLog(xids=(XidEvent(xid=48),))))[0] == "nvidia-smi -q -d ECC,ROW_REMAPPER"


def test_a_refused_driver_asks_for_the_kernel_log() -> None:
    assert "dmesg" in commands(Snapshot(driver=Driver(nvml_error="Unknown Error")))[0]


def test_several_boards_ask_for_their_links(healthy: Snapshot) -> None:
    boards = Gpus(boards=(Gpu(index=0, ecc_mode=False), Gpu(index=1, ecc_mode=False)))
    assert commands(msgspec.structs.replace(healthy, topology=None, gpus=boards)) == ("nvidia-smi topo -m",)


def test_a_machine_that_was_read_asks_for_nothing(healthy: Snapshot) -> None:
    assert commands(healthy) == ()


def test_a_torch_for_amd_asks_for_nothing_of_nvidia() -> None:
    build = TorchBuild(installed=True, version="2.8.0+rocm6.4", build="rocm")
    assert commands(Snapshot(torch=build)) == ()
