"""The GPU boards of a host as NVML (or nvidia-smi) describes them."""

from gpudoctor.facts.base import Fact, Subject


class GpuProcess(Fact, frozen=True, kw_only=True):
    """One process that holds memory on a GPU."""

    pid: int
    kind: str = "compute"
    """`compute` (clients of MPS too) or `graphics`; what does both is graphics, as desktop programs are."""
    memory_bytes: int | None = None
    """None where the driver does not say (WSL, MIG, no permission). 0 is a peer context, harmless."""
    name: str | None = None
    """As /proc/PID/comm has it; None for a process of another container or user."""
    ours: bool = False
    """Of this check, such as its own smoke test, or of the job that started it."""


class MigInstance(Fact, frozen=True, kw_only=True):
    """One MIG instance of a board."""

    uuid: str | None = None
    name: str | None = None
    memory_total_bytes: int | None = None


class Gpu(Fact, frozen=True, kw_only=True):
    """One board, in NVML order (which is PCI bus order, not always CUDA's)."""

    index: int
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    compute_capability: str | None = None
    """`major.minor`, such as `9.0`."""

    pci_bus_id: str | None = None
    """`domain:bus:device.function` with an eight-digit domain, such as `00000000:0F:00.0`."""
    pcie_generation: int | None = None
    """In use now; falls at idle, so never judge it on an idle board."""
    pcie_generation_max: int | None = None
    """The most that board and slot can do together."""
    pcie_width: int | None = None
    """Lanes in use now (1 to 16)."""
    pcie_width_max: int | None = None
    """Lanes that board and system can do together, by NVML (1 to 16)."""
    pcie_slot_width: int | None = None
    """Lanes of the slot (upstream port) it sits in, where sysfs tells."""
    pcie_replays: int | None = None
    """Replays over the board's life (or since the driver loaded): a rate is needed to judge it."""
    pcie_replays_per_s: float | None = None
    """Replays in the short time the probe watched, a second; None where it watched less than 50 ms, in which one
    replay alone would look like many."""

    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    """In use by contexts, without the part the driver keeps for itself (NVML memory v2)."""
    memory_reserved_bytes: int | None = None
    """Kept by the driver and firmware; None where only NVML's v1 call exists, which counts it as used."""
    processes: tuple[GpuProcess, ...] | None = None
    virtualization: str | None = None
    """`none`, `passthrough`, `vgpu` (a guest's share of a board), `host_vgpu` or `host_vsga` (guests hold shares)."""
    memory_node: int | None = None
    """NUMA node that its memory forms, from which any program may be given pages (Grace Hopper and newer)."""

    utilization_ratio: float | None = None
    """Share of the last sample period in which a kernel ran, 0 to 1."""
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """Enforced now."""
    power_limit_default_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_application_mhz: int | None = None
    """Application (or locked) SM clock, where one is set."""
    clock_application_default_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """NVML names without prefix, lower case: `gpu_idle`, `sw_power_cap`, `hw_slowdown`, `hw_thermal_slowdown`,
    `hw_power_brake_slowdown`, `sw_thermal_slowdown`, `sync_boost`, `applications_clocks_setting`,
    `display_clock_setting`."""
    performance_state: int | None = None
    """P0 (fastest) to P15."""

    persistence_mode: bool | None = None
    compute_mode: str | None = None
    """`default`, `exclusive_process`, `exclusive_thread` or `prohibited`."""
    mig_mode: bool | None = None
    """None where the board has no MIG."""
    mig_instances: tuple[MigInstance, ...] = ()
    """Those this process may see; in `Gpus.unread` where that was not to be learnt."""

    ecc_mode: bool | None = None
    """None where the board has no ECC."""
    ecc_uncorrected_volatile: int | None = None
    """Since the driver loaded."""
    ecc_uncorrected_aggregate: int | None = None
    ecc_corrected_volatile: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    row_remap_uncorrectable: int | None = None
    retired_pages: int | None = None
    retired_page_pending: bool | None = None
    recovery_action: str | None = None
    """`none`, `gpu_reset`, `node_reboot`, `drain_p2p`, `drain_and_reset`, `recover_imex_domain`, `bus_reset`,
    `system_reboot` (r570 and newer); `gpu_reset` also where NVML refuses the board until then."""
    inforom_corrupt: bool | None = None
    lost: bool = False
    """NVML lists the board and cannot talk to it ("GPU is lost", "fallen off the bus")."""
    error: str | None = None
    """NVML's words where the board could not be read."""

    fabric_state: str | None = None
    """`not_supported`, `not_started`, `in_progress` or `completed`; NVSwitch systems need `completed`."""
    fabric_status: str | None = None
    """NVML's name of the status the fabric completed with, such as `success`."""
    fabric_health: str | None = None
    """`healthy`, `unhealthy`, `limited_capacity`; None where the driver has no summary."""

    numa_node: int | None = None
    """The node whose CPUs are near; None where the machine has one node, or firmware does not say."""
    cpu_affinity: tuple[int, ...] | None = None
    """CPUs near this board; all of them where the machine has one node."""


class Gpus(Subject, frozen=True, kw_only=True):
    """All boards the driver lists for this process. An empty tuple: NVML answered and lists none.

    Boards that a control group keeps from it are left out, and counted in `unread`.
    """

    boards: tuple[Gpu, ...] = ()
    source: str = "nvml"
    """`nvml`, `nvidia-smi` or `text`."""
