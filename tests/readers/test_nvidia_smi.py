"""Tables of nvidia-smi, its process table, its list and its refusals."""

import pytest

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, GpuProcess
from gpudoctor.readers.nvidia_smi import read

MIB = 2**20

OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 410.79       Driver Version: 410.79       CUDA Version: 10.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla P100-PCIE...  Off  | 00000000:02:00.0 Off |                    3 |
| N/A   43C    P0    61W / 250W |  11151MiB / 16280MiB |     99%   E. Process |
+-------------------------------+----------------------+----------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     11250      C   /opt/conda/bin/python train.py             11141MiB |
+-----------------------------------------------------------------------------+
"""
NEW = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 612.10                 KMD Version: 612.10        CUDA UMD Version: 13.4     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                   On |
| N/A   31C    P0             76W /  700W |       7MiB /  81559MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 4090       Off  |   00000000:21:00.0  On |                  N/A |
| 30%   45C    P8    Unknown Error /  450W |     490MiB /  24564MiB |     12%   Prohibited |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
| MIG devices:                                                                            |
|  0    1   0   0  |              12MiB / 40192MiB    | 60      0 |  4   0    4    0    4 |
+------------------+----------------------------------+-----------+-----------------------+
| Processes:                                                                              |
|    1   N/A  N/A            2104      G   /usr/lib/xorg/Xorg                      210MiB |
|    1   N/A  N/A            2200    C+G   C:\\Windows\\explorer.exe                     N/A  |
+-----------------------------------------------------------------------------------------+
"""


def _boards(text: str) -> tuple[Gpu, ...]:
    found = read(text)
    assert found is not None
    assert found.gpus is not None
    return found.gpus.boards


def _driver(text: str) -> Driver | None:
    found = read(text)
    return found.driver if found else None


def test_a_table_of_2018_is_read() -> None:
    (board,) = _boards(OLD)
    assert board == Gpu(
        index=0,
        name="Tesla P100-PCIE...",
        pci_bus_id="00000000:02:00.0",
        persistence_mode=False,
        ecc_mode=True,
        ecc_uncorrected_volatile=3,
        temperature_c=43,
        performance_state=0,
        power_w=61.0,
        power_limit_w=250.0,
        memory_used_bytes=11151 * MIB,
        memory_total_bytes=16280 * MIB,
        utilization_ratio=0.99,
        compute_mode="exclusive_process",
        processes=(
            GpuProcess(pid=11250, kind="compute", memory_bytes=11141 * MIB, name="/opt/conda/bin/python train.py"),
        ),
    )
    assert _driver(OLD) == Driver(module_version="410.79", library_version="410.79", cuda_version="10.0")


def test_a_table_of_610_and_later_is_read_with_mig() -> None:
    first, second = _boards(NEW)
    assert (first.mig_mode, first.ecc_mode, first.utilization_ratio) == (True, True, None)
    assert [instance.memory_total_bytes for instance in first.mig_instances] == [40192 * MIB]
    assert first.processes == ()
    assert (second.name, second.power_w, second.compute_mode) == ("NVIDIA GeForce RTX 4090", None, "prohibited")
    assert [(process.kind, process.memory_bytes) for process in second.processes or ()] == [
        ("graphics", 210 * MIB),
        ("graphics", None),
    ]
    assert _driver(NEW) == Driver(module_version="612.10", library_version="612.10", cuda_version="13.4")


@pytest.mark.parametrize("line", range(1, len(NEW.splitlines())))
def test_a_table_cut_anywhere_is_read_as_far_as_it_goes(line: int) -> None:
    found = read("\n".join(NEW.splitlines()[:line]))
    boards = found.gpus.boards if found and found.gpus else ()
    assert [board.index for board in boards] == list(range(len(boards)))


def test_a_table_cut_at_the_right_keeps_what_is_left() -> None:
    cut = "\n".join(line[:66] for line in NEW.splitlines())
    assert [board.name for board in _boards(cut)] == ["NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"]


def test_no_listed_process_does_not_say_that_there_is_none() -> None:
    """A container sees none, whoever uses the boards."""
    (board,) = _boards(OLD.replace("11250      C", "No running processes found"))
    assert board.processes is None


def test_the_process_table_alone_makes_boards() -> None:
    row = "|    {}   N/A  N/A     26598      C   python     2885MiB |"
    rows = f"{row.format(5)}\n{row.format(6)}"
    assert [(board.index, len(board.processes or ())) for board in _boards(rows)] == [(5, 1), (6, 1)]


def test_a_list_gives_names_and_mig_instances() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5d5f)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-aa)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-77)\n"
    )
    first, second = _boards(text)
    assert (first.name, first.uuid) == ("NVIDIA A100-SXM4-80GB", "GPU-5d5f")
    assert [instance.name for instance in first.mig_instances] == ["MIG 1g.10gb"]
    assert second.mig_instances == ()


def test_the_last_state_counts() -> None:
    refusal = "$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\n"
    broken, cured = _driver(OLD + refusal), _driver(refusal + OLD)
    assert broken is not None
    assert cured is not None
    assert (broken.module_version, broken.library_version) == ("410.79", None)
    assert broken.nvml_error == "Driver/library version mismatch"
    assert (cured.library_version, cured.nvml_error) == ("410.79", None)


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that",
        "bash: nvidia-smi: command not found",
        "'nvidia-smi' is not recognized as an internal or external command",
    ],
)
def test_a_driver_that_is_not_there_is_a_refusal(text: str) -> None:
    driver = _driver(text)
    assert driver is not None
    assert driver.nvml_error
    assert driver.module_version is None


def test_no_devices_is_an_answer() -> None:
    assert _boards("No devices were found\n") == ()


@pytest.mark.parametrize(
    "text",
    [
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU0: 0000:0B:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 0000:0B:00.0: GPU is lost.  Reboot the system",
    ],
)
def test_a_board_without_a_handle_is_lost(text: str) -> None:
    (board,) = _boards(text)
    assert board.lost
    assert board.pci_bus_id == "00000000:0B:00.0"
    assert _driver(text) is None


def test_other_tables_are_none() -> None:
    assert read("| a | b |\n|---|---|\n|  1  x On | 2 |\n| 1 2 C |\n") is None
