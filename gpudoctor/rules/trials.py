"""Rules on what was tried at `check --deep` and failed: wrong numbers, lost bytes, deaths and hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.measured import StageFailure
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot

DELIBERATE = ("out of memory", "CUDA-capable device(s) is/are busy")
"""Errors that belong to others: memory in use, exclusive mode."""
NVLS = re.compile(r"NVLS|multicast|NVLink SHARP", re.IGNORECASE)


@rule(
    "NVL007",
    "p2p-writes-lost",
    Severity.ERROR,
    why="gradients that cross this pair arrive wrong, and no error tells",
    fix=(
        Fix("train without peer access until it is mended", "export NCCL_P2P_DISABLE=1", safety="slower"),
        Fix("let peer traffic pass: turn ACS off on the bridges and set iommu=pt (or off)", safety="needs root"),
    ),
    confirm="simpleP2P of the CUDA samples",
    source="a pattern that the check writes into the other GPU's memory and reads back",
    because=("PCI004", "PCI005"),
)
def p2p_writes_lost(machine: Snapshot) -> Iterator[Evidence]:
    """What one GPU wrote into another's memory is not there when it is read.

    Silent where the copy raised an error or hung: NCC017 tells of that.
    """
    for pair in machine.measured.peers if machine.measured else ():
        if not pair.intact:
            way = "by peer access" if pair.access else "through the host"
            yield Evidence(
                where=f"GPU {pair.first} to GPU {pair.second}",
                what=f"64 MiB copied {way}",
                seen="other bytes arrived",
                wanted="the same bytes",
            )


@rule(
    "TOR016",
    "operation-fails",
    Severity.ERROR,
    why="trainings use this operation, and fail, die or hang in the same way",
    fix=(
        Fix("look up the error; the kernel log tells whether the driver or the system ended it", "sudo dmesg | tail"),
        Fix("see whether another version of torch does it; report it to PyTorch with the output of", "gpudoctor check"),
    ),
    confirm="the operation named, in a Python session",
    source="the operation, tried by check --deep in a process of its own",
    because=(
        *("TOR002", "TOR004", "TOR005", "TOR014", "LIB001", "LIB002", "GPU001", "GPU007", "GPU018"),
        *("CTR001", "SYS002", "SYS003"),
    ),
)
def operation_fails(machine: Snapshot) -> Iterator[Evidence]:
    """An operation of `check --deep` raised an error, died by a signal or did not end. A warning for those that many
    trainings do without: torch.compile, CUDA graphs, single back ends of attention.

    Silent for what the device or the environment does not have (no compiler), for memory that others hold, for /dev/shm
    (SHM004) and for collectives and peer copies that hang (NCC013, NCC015, NCC017).
    """
    measured = machine.measured
    if measured is None:
        return
    for feature in measured.features:
        if not feature.ok and feature.skipped is None and not _others(feature.error):
            severity = None if feature.name in {"convolution", "attention math"} else Severity.WARNING
            where = "" if feature.gpu is None else f"GPU {feature.gpu}"
            seen = feature.error or "failed"
            yield Evidence(where=where, what=feature.name, seen=seen, wanted="it works", severity=severity)
    for trial in measured.loaders:
        if not trial.ok and not of_shared_memory(trial.error):
            what = f"loader workers by {trial.start_method}, {trial.sharing}"
            yield Evidence(
                what=what,
                seen=trial.error or "failed",
                wanted="batches arrive",
                confidence="likely" if "timed out" in (trial.error or "") else "certain",
            )
    for failure in measured.failures:
        told_elsewhere = (
            (failure.stage == "loader" and of_shared_memory(failure.error))
            or (failure.stage in {"peer", "collective"} and failure.timed_out)
            or (failure.stage == "collective" and NVLS.search(failure.error or ""))
        )
        if not told_elsewhere and not _others(failure.error):
            severity = Severity.WARNING if failure.stage == "compile" else None
            yield Evidence(
                where=_places(failure.gpus),
                what=STAGES.get(failure.stage, failure.stage),
                seen=ended(failure),
                wanted="it ends well",
                severity=severity,
                confidence="likely" if failure.timed_out or failure.signal == KILL else "certain",
            )
    for row in measured.collectives:
        if not row.correct:
            what = f"{row.op} of {row.ranks} ranks over {row.backend}, {row.bytes / 2**20:.0f} MiB"
            yield Evidence(what=what, seen="wrong numbers", wanted="the right ones")


STAGES = {
    "gemm": "matrix products",
    "memory": "copy inside the memory",
    "host_link": "copies from and to the host",
    "launch": "many small kernels",
    "features": "convolution, attention, CUDA graph",
    "compile": "torch.compile",
    "loader": "loader workers",
    "peer": "copy between two GPUs",
    "collective": "collectives of all ranks",
}
SHM_WORDS = re.compile(r"bus error|shared memory|no space left|\bshm\b|unable to mmap", re.IGNORECASE)
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
KILL = 9


def of_shared_memory(error: str | None) -> bool:
    """The words are those of a /dev/shm that is too small or may not be used, and not of too few open files."""
    return error is not None and bool(SHM_WORDS.search(error)) and "Too many open files" not in error


def ended(failure: StageFailure) -> str:
    """`died by SIGSEGV: …`, `no answer in 40 s (measure_child.py, line 7 in gemm)`."""
    place = f" ({failure.stack})" if failure.stack else ""
    if failure.timed_out:
        return f"no answer in {failure.deadline_s or 0:.0f} s{place}"
    if failure.signal is not None:
        cause = (
            ", most often for memory" if failure.signal == KILL else f": {failure.error}" if failure.error else place
        )
        return f"died by {SIGNALS.get(failure.signal, f'signal {failure.signal}')}{cause}"
    return failure.error or f"the process ended with exit code {failure.exit_code}"


def wrong_products(machine: Snapshot) -> Iterator[Evidence]:
    """For PRE005: beyond the bound of its format, or different the second time."""
    for row in machine.measured.gemm if machine.measured else ():
        where = "the CPU" if row.gpu is None else f"GPU {row.gpu}"
        fix = (
            ()
            if row.gpu is not None
            else (Fix("test the memory (memtest86+) and look for machine checks in the kernel log"),)
        )
        if row.correct is False:
            seen = f"relative error {row.relative_error:.1e}" if row.relative_error is not None else "not a number"
            yield Evidence(
                where=where, what=f"{row.format} product", seen=seen, wanted=f"below {row.bound:.1e}", fix=fix
            )
        if row.repeatable is False:
            yield Evidence(
                where=where,
                what=f"two {row.format} products of the same matrices",
                seen="different bits",
                wanted="the same bits",
                source="cuBLAS documentation, Results Reproducibility",
                fix=fix,
            )


def peer_hangs(machine: Snapshot) -> Iterator[Evidence]:
    """For NCC017: a copy from one GPU to another that never ended."""
    for failure in machine.measured.failures if machine.measured else ():
        if failure.stage == "peer" and failure.timed_out:
            where = " to ".join(f"GPU {gpu}" for gpu in failure.gpus)
            yield Evidence(where=where, what="64 MiB copied", seen=ended(failure), wanted="it ends in milliseconds")


def nvls_failures(machine: Snapshot) -> Iterator[Evidence]:
    """For NCC013: NCCL's words."""
    for failure in machine.measured.failures if machine.measured else ():
        if failure.stage == "collective" and NVLS.search(failure.error or ""):
            yield Evidence(what="NVLink SHARP", seen=failure.error or "", wanted="multicast memory on every GPU")


def collective_hangs(machine: Snapshot) -> Iterator[Evidence]:
    """For NCC015: the check's own collectives."""
    for failure in machine.measured.failures if machine.measured else ():
        if failure.stage == "collective" and failure.timed_out:
            where = _places(failure.gpus)
            yield Evidence(
                where=where, what="collectives of the check", seen=ended(failure), wanted="they end in seconds"
            )


def _others(error: str | None) -> bool:
    return error is not None and any(words in error for words in DELIBERATE)


def _places(gpus: tuple[int, ...]) -> str:
    return f"GPU {', '.join(str(gpu) for gpu in gpus)}" if gpus else ""


RULES: tuple[Rule[Snapshot], ...] = (p2p_writes_lost, operation_fails)
