"""What a machine is, in a line or two an area: the part of a report that is no finding."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gpudoctor.facts.exposure import Exposure
from gpudoctor.facts.network import Network
from gpudoctor.findings import Finding, Severity
from gpudoctor.reports.document import Document
from gpudoctor.reports.figures import count, three
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

GIB = 2**30

Fact = tuple[str, str]
"""Area of the rules that judge it, and the text."""


def header(document: Document) -> str:
    """`node1 · 8 × H100 · torch 2.11.0+cu130 · driver 580.95`, as far as it is known; of a job its ranks and steps."""
    machine, run = document.snapshot, document.run
    parts = [document.host or _hosts(run), _devices(run, machine), _torch_version(run, machine)]
    if machine.driver is not None and machine.driver.module_version:
        parts.append("driver " + ".".join(machine.driver.module_version.split(".")[:2]))
    parts.append(_extent(run))
    return " · ".join(part for part in parts if part)


def lines(document: Document) -> Iterator[tuple[str, str]]:
    """A title and its facts for each part of the machine that was read and has no finding above info."""
    troubled = {finding.code[:3] for finding in document.findings if finding.severity is not Severity.INFO}
    for title, facts in _FACTS.items():
        told = list(dict.fromkeys(text for area, text in facts(document.snapshot) if area not in troubled))
        if told:
            yield title, ", ".join(told)


def short_gpu_name(name: str) -> str:
    """`H100` of `NVIDIA H100 80GB HBM3`; the maker, the memory and the form are left out."""
    words = re.split(r"[\s-]+", name.strip())
    dropped = re.compile(r"NVIDIA|GeForce|Tesla|\d+GB|HBM\w*|SXM\d*|PCIE?", re.IGNORECASE)
    return " ".join(word for word in words if not dropped.fullmatch(word)) or name


def count_by_severity(findings: tuple[Finding, ...]) -> str:
    """`1 error, 2 warnings`; empty for none."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(
        f"{counts[severity]} {severity.value}{'s' if counts[severity] > 1 else ''}"
        for severity in Severity
        if counts[severity]
    )


def _gpus(machine: Snapshot) -> str | None:
    if machine.gpus is not None:
        names = Counter(short_gpu_name(board.name or "GPU") for board in machine.gpus.boards)
        return " + ".join(f"{count} × {name}" for name, count in names.items()) or "no GPU"
    if machine.driver is not None and machine.driver.pci_gpus == 0:
        return "no NVIDIA GPU"
    return None


def _hosts(run: Run | None) -> str | None:
    names = sorted({rank.host for rank in run.ranks if rank.host}) if run else []
    return names[0] if len(names) == 1 else f"{len(names)} hosts" if names else None


def _devices(run: Run | None, machine: Snapshot) -> str | None:
    """Of a job what its ranks ran on, counted where the traces tell boards apart."""
    ranks = [rank for rank in run.ranks if rank.device] if run else []
    if not ranks or (machine.gpus is not None and any(rank.device != "cpu" for rank in ranks)):
        return _gpus(machine)
    names = " + ".join(sorted({short_gpu_name(rank.device or "") for rank in ranks})).replace("cpu", "CPU")
    boards = {(rank.host, rank.device_index) for rank in ranks}
    # Ranks that each see one board alone all call it 0.
    counted = len({rank.device for rank in ranks}) == 1 and len(boards) in {len(ranks), 1} and names != "CPU"
    return f"{len(boards)} × {names}" if counted and (len(boards) > 1 or len(ranks) == 1) else names


def _torch_version(run: Run | None, machine: Snapshot) -> str | None:
    version = next((rank.job.torch for rank in run.ranks if rank.job and rank.job.torch), None) if run else None
    if version is not None:
        return f"torch {version}"
    if machine.torch is None or machine.torch.installed is None:
        return None
    return f"torch {machine.torch.version or '?'}" if machine.torch.installed else "no torch"


def _extent(run: Run | None) -> str | None:
    """`2 ranks × 4 steps`."""
    if run is None or not run.ranks:
        return None
    seen, world = len(run.ranks), run.world_size or 0
    ranks = f"{seen} of {world} ranks" if world > seen else count(seen, "rank")
    return f"{ranks} × {count(run.steps, 'step')}" if run.steps else ranks


def _driver(machine: Snapshot) -> Iterator[Fact]:
    driver = machine.driver
    if driver is None:
        return
    if driver.module_version:
        yield "DRV", driver.module_version + (" (open module)" if driver.module_open else "")
    if driver.cuda_version:
        yield "DRV", f"CUDA up to {driver.cuda_version}"
    if driver.fabric_manager_running:
        yield "DRV", "fabric manager runs"


def _boards(machine: Snapshot) -> Iterator[Fact]:
    boards = machine.gpus.boards if machine.gpus else ()
    if not boards:
        return
    sizes = sorted({board.memory_total_bytes for board in boards if board.memory_total_bytes})
    if sizes:
        yield "GPU", " and ".join(f"{size / GIB:.0f} GiB" for size in sizes) + " each" * (len(boards) > 1)
    if any(board.processes is not None for board in boards):
        yield "GPU", f"{sum(len(board.processes or ()) for board in boards) or 'no'} processes"
    hottest = max((board.temperature_c for board in boards if board.temperature_c is not None), default=None)
    if hottest is not None:
        yield "GPU", f"at most {hottest} °C"
    if all(board.ecc_uncorrected_volatile == 0 for board in boards):
        yield "GPU", "no memory errors"


def _links(machine: Snapshot) -> Iterator[Fact]:
    boards = machine.gpus.boards if machine.gpus else ()
    widths = sorted({f"x{board.pcie_width}" for board in boards if board.pcie_width})
    if widths:
        yield "PCI", f"PCIe {' and '.join(widths)}"
    topology = machine.topology
    if topology is None or len(boards) < 2:
        return
    active = [link for link in topology.nvlinks or () if link.active]
    if active:
        yield "NVL", f"{len(active)} NVLinks up"
    paths = Counter(pair.path for pair in topology.pairs or () if pair.path)
    if paths:
        yield "NVL", "pairs " + " and ".join(paths)


def _torch(machine: Snapshot) -> Iterator[Fact]:
    build, runtime = machine.torch, machine.torch_runtime
    if build is not None and build.python_version:
        yield "TOR", f"Python {build.python_version}"
    if runtime is None:
        return
    if runtime.import_s is not None:
        yield "TOR", f"imports in {runtime.import_s:.1f} s"
    tests = runtime.smoke or ()
    if tests and all(test.ok for test in tests):
        yield "TOR", f"{len(tests)} GPU{'s' * (len(tests) > 1)} compute right"
    # The default is told by tf32-off where it matters.
    if runtime.precision is not None and runtime.precision.float32_matmul not in {None, "highest"}:
        yield "PRE", f"float32 matmul {runtime.precision.float32_matmul}"


def _libraries(machine: Snapshot) -> Iterator[Fact]:
    loaded = {
        library.name: library.loaded
        for library in (machine.torch_runtime.libraries or () if machine.torch_runtime else ())
        if library.loaded
    }
    wheels = {
        wheel.library: wheel.version
        for wheel in (machine.libraries.wheels or () if machine.libraries else ())
        if wheel.library and wheel.version
    }
    for name, title in (("cudnn", "cuDNN"), ("nccl", "NCCL"), ("cublas", "cuBLAS")):
        if version := loaded.get(name, wheels.get(name)):
            yield "LIB", f"{title} {version}"


def _host(machine: Snapshot) -> Iterator[Fact]:
    if machine.cpu is not None and machine.cpu.usable is not None:
        yield "SYS", f"{machine.cpu.usable:g} CPUs"
    memory = (
        [value for value in (machine.limits.memory_total_bytes, machine.limits.memory_limit_bytes) if value]
        if (machine.limits)
        else []
    )
    if memory:
        yield "SYS", f"{_gib(min(memory))}"
    if machine.shm is not None and machine.shm.total_bytes:
        yield "SHM", f"/dev/shm {_gib(machine.shm.total_bytes)}"
    if machine.container is not None:
        yield "CTR", f"in {machine.container.kind}" if machine.container.kind else "no container"


def _launch(machine: Snapshot) -> Iterator[Fact]:
    if machine.environment is not None:
        names = machine.environment.variables
        if "CUDA_VISIBLE_DEVICES" in names:
            yield "ENV", f"CUDA_VISIBLE_DEVICES={names['CUDA_VISIBLE_DEVICES']}"
        nccl = sum(name.startswith("NCCL_") for name in {**machine.environment.nccl_config, **names})
        yield "NCC", f"{nccl or 'no'} NCCL variable{'s' * (nccl != 1)}"
    if machine.network is not None:
        yield from _network(machine.network)


def _network(network: Network) -> Iterator[Fact]:
    if network.host_addresses:
        yield "NET", "host name resolves"
    if any(port.state is not None for port in network.rdma_ports or ()):
        active = sum(port.state == "ACTIVE" for port in network.rdma_ports or ())
        yield "NCC", f"{active} of {len(network.rdma_ports or ())} RDMA ports active"


def _exposure(machine: Snapshot) -> Iterator[Fact]:
    exposure: Exposure | None = machine.exposure
    if exposure is None:
        return
    if exposure.notebooks is not None:
        yield "SEC", f"{len(exposure.notebooks) or 'no'} notebook server{'s' * (len(exposure.notebooks) != 1)}"
    if exposure.sshd_running is not None:
        password = {True: ", with passwords", False: ", keys only", None: ""}[exposure.sshd_password]
        yield "SEC", f"sshd runs{password}" if exposure.sshd_running else "no sshd"


def _measured(machine: Snapshot) -> Iterator[Fact]:
    """Medians over the boards; the CPU's where there is none."""
    measured = machine.measured
    if measured is None:
        return
    from statistics import median  # here: it costs a quick check a hundredth of a second

    rates = {
        name: median(row.tflops for row in measured.gemm if row.format == name and row.tflops)
        for name in dict.fromkeys(row.format for row in measured.gemm if row.tflops)
    }
    if rates:
        scale, unit = (1.0, "TFLOP/s") if max(rates.values()) >= 1 else (1e3, "GFLOP/s")
        told = ", ".join(f"{name.replace('tf32', 'TF32')} {three(rate * scale)}" for name, rate in rates.items())
        yield "PRE", f"GEMM {told} {unit}"
    if measured.memory:
        yield "PRE", f"memory {three(median(row.gb_s for row in measured.memory))} GB/s"
    links = [row.gb_s for row in measured.host_links if row.pinned]
    if links:
        yield "PRE", f"host {three(median(links))} GB/s"
    if measured.launches:
        yield "PRE", f"launch {three(median(row.us for row in measured.launches))} µs"
    if measured.peers and all(pair.intact for pair in measured.peers):
        rate = median(pair.gb_s for pair in measured.peers if pair.gb_s)
        yield "NVL", f"{len(measured.peers)} peer copies intact at {three(rate)} GB/s"
    largest = max((row.bytes for row in measured.collectives if row.op == "all_reduce"), default=0)
    for row in measured.collectives:
        if row.op == "all_reduce" and row.bytes == largest:
            size = f"{largest / GIB:.0f} GiB" if largest >= GIB else f"{largest / 2**20:.0f} MiB"
            yield "NCC", f"{row.backend} all-reduce {size} over {row.ranks}: bus {three(row.bus_gb_s)} GB/s"
    if measured.loaders and all(trial.ok for trial in measured.loaders):
        yield "SHM", "loader workers pass batches"
    tried = [feature for feature in measured.features if feature.skipped is None]
    if tried and all(feature.ok for feature in tried):
        names = list(dict.fromkeys(feature.name.partition(" ")[0].replace("_", " ") for feature in tried))
        yield "TOR", f"{', '.join(names)} work"


_FACTS = {
    "driver": _driver,
    "GPUs": _boards,
    "links": _links,
    "torch": _torch,
    "libraries": _libraries,
    "host": _host,
    "launch": _launch,
    "measured": _measured,
    "exposure": _exposure,
}


def _gib(size_bytes: int) -> str:
    size = size_bytes / GIB
    return f"{size:.0f} GiB" if size >= 10 else f"{size:.2g} GiB"
