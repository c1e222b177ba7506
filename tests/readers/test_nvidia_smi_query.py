"""`nvidia-smi -q`: whole boards, parts, older layouts, lost indentation."""

from textwrap import dedent

from gpudoctor.facts.gpu import Gpu, GpuProcess
from gpudoctor.readers.nvidia_smi_query import read

MIB = 2**20

WHOLE = """\
==============NVSMI LOG==============

Timestamp                                 : Wed Sep 25 08:12:41 2024
Driver Version                            : 570.124.06
CUDA Version                              : 12.8

Attached GPUs                             : 2
GPU 00000000:0F:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Addressing Mode                       : HMM
    MIG Mode
        Current                           : Disabled
        Pending                           : Enabled
    Serial Number                         : 1650000000000
    GPU UUID                              : GPU-0
    VBIOS Version                         : 96.00.74.00.01
    GPU Recovery Action                   : Drain and Reset
    PCI
        Bus Id                            : 00000000:0F:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 4
                Device Max                : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 3
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 100 us
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 600 MiB
        Used                              : 871 MiB
        Free                              : 80000 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    Compute Mode                          : Exclusive_Process
    Utilization
        Gpu                               : 97 %
    ECC Mode
        Current                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 2
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 4
        Aggregate
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : 9
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 7
    Retired Pages
        Single Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 4
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 51 C
    GPU Power Readings
        Average Power Draw                : N/A
        Instantaneous Power Draw          : 512.50 W
        Current Power Limit               : 600.00 W
        Default Power Limit               : 700.00 W
    Module Power Readings
        Current Power Limit               : N/A
    Clocks
        SM                                : 1410 MHz
    Max Clocks
        SM                                : 1980 MHz
    Fabric
        State                             : In Progress
        Status                            : N/A
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : python
            Used GPU Memory               : 860 MiB

GPU 00000000:2A:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Remapped Rows                         : N/A
    Processes                             : None
"""


def _boards(text: str) -> tuple[Gpu, ...]:
    found = read(text)
    assert found is not None
    assert found.gpus is not None
    return found.gpus.boards


def test_a_whole_output_is_read() -> None:
    first, second = _boards(WHOLE)
    assert first == Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-0",
        serial="1650000000000",
        vbios="96.00.74.00.01",
        pci_bus_id="00000000:0F:00.0",
        persistence_mode=True,
        mig_mode=False,
        recovery_action="drain_and_reset",
        pcie_generation=4,
        pcie_generation_max=5,
        pcie_width=8,
        pcie_width_max=16,
        pcie_replays=3,
        performance_state=0,
        throttle_reasons=("sw_power_cap",),
        memory_total_bytes=81559 * MIB,
        memory_reserved_bytes=600 * MIB,
        memory_used_bytes=871 * MIB,
        compute_mode="exclusive_process",
        utilization_ratio=0.97,
        ecc_mode=True,
        ecc_uncorrected_volatile=6,
        ecc_uncorrected_aggregate=9,
        ecc_corrected_volatile=1,
        row_remap_pending=True,
        row_remap_failed=False,
        row_remap_uncorrectable=4,
        temperature_c=51,
        power_w=512.5,
        power_limit_w=600.0,
        power_limit_default_w=700.0,
        clock_sm_mhz=1410,
        clock_sm_max_mhz=1980,
        fabric_state="in_progress",
        processes=(GpuProcess(pid=4242, kind="compute", name="python", memory_bytes=860 * MIB),),
    )
    assert second == Gpu(index=1, name="NVIDIA H100 80GB HBM3", pci_bus_id="00000000:2A:00.0")


def test_the_driver_is_read() -> None:
    found = read(WHOLE)
    assert found is not None
    assert found.driver is not None
    assert (found.driver.module_version, found.driver.cuda_version) == ("570.124.06", "12.8")


def test_lost_indentation_changes_nothing() -> None:
    flat = "\n".join(line.strip() for line in WHOLE.splitlines())
    assert _boards(flat) == _boards(WHOLE)


def test_a_part_without_its_board_makes_a_nameless_one() -> None:
    (board,) = _boards("        Remapped Rows\n            Pending                : Yes\n")
    assert board == Gpu(index=0, row_remap_pending=True)


def test_boards_before_ampere_count_single_and_double_bits() -> None:
    text = dedent("""\
        ECC Errors
            Volatile
                Single Bit
                    Device Memory             : 5
                    Total                     : 5
                Double Bit
                    Device Memory             : 1
                    Total                     : 1
            Aggregate
                Double Bit
                    Total                     : 2
        Retired Pages
            Single Bit ECC                    : 2
            Double Bit ECC                    : 1
            Pending                           : Yes
        """)
    (board,) = _boards(text)
    assert (board.ecc_uncorrected_volatile, board.ecc_uncorrected_aggregate) == (1, 2)
    assert (board.ecc_corrected_volatile, board.retired_pages, board.retired_page_pending) == (5, 3, True)


def test_fabric_health_is_read_and_na_is_no_answer() -> None:
    (board,) = _boards(
        "Fabric\n    State     : Completed\n    Status    : Success\n    Health\n        Summary   : N/A\n"
    )
    assert (board.fabric_state, board.fabric_status, board.fabric_health) == ("completed", "success", None)


def test_prose_that_names_a_section_is_none() -> None:
    assert read("Remapped Rows : we saw some\nECC Errors are there too\n") is None
