"""Which output to ask for next: the one that would decide most of what the texts so far leave open."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.snapshot import Snapshot

MOST = 2
ASKED = "python -m torch.utils.collect_env"


def commands(machine: Snapshot) -> tuple[str, ...]:
    """The most telling first, at most MOST."""
    return tuple(list(dict.fromkeys(_wanted(machine)))[:MOST])


def _wanted(machine: Snapshot) -> Iterator[str]:
    boards = machine.gpus.boards if machine.gpus is not None else ()
    kinds = {text.kind for text in machine.errors.recognised} if machine.errors is not None else set()
    driver, log = machine.driver, machine.kernel_log
    if log is not None and log.xids and not any(board.row_remap_pending is not None for board in boards):
        yield "nvidia-smi -q -d ECC,ROW_REMAPPER"
    if driver is not None and (driver.nvml_error or driver.cuda_error) and log is None:
        yield "sudo dmesg | grep -i -e nvrm -e nvidia"
    if driver is not None and driver.cuda_error and driver.module_version is None:
        yield "nvidia-smi"
    if machine.nccl_log is not None and not machine.nccl_log.hosts:
        yield "the log of all ranks with NCCL_DEBUG=INFO"
    if kinds & {"loader_worker_killed", "shm_refused"} and (machine.shm is None or machine.shm.total_bytes is None):
        yield "df -h /dev/shm"
    runtime = machine.torch_runtime
    failed = runtime is not None and runtime.stage == "import"
    if failed and (machine.packages is None or machine.libraries is None):
        yield "pip list"
    if machine.torch is None or machine.torch.version is None:
        yield ASKED
    for_nvidia = machine.torch is None or machine.torch.build in {None, "cuda", "cpu"}
    if machine.gpus is None and for_nvidia and (driver is None or driver.nvml_error is None):
        yield "nvidia-smi"
    several = len(boards) > 1 or machine.nccl_log is not None
    if several and (machine.topology is None or not machine.topology.pairs):
        yield "nvidia-smi topo -m"
    if boards and not any(board.ecc_uncorrected_volatile is not None or board.ecc_mode is not None for board in boards):
        yield "nvidia-smi -q"
