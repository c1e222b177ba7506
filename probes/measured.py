"""Make the hardware work, in children of the interpreter under examination, and take down what it did.

One child does one stage after the other as it is asked; where it dies or hangs, that stage alone is lost, and the next
one is asked of a new child. Stages that need a process without CUDA, or several processes, have children of their own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any

import msgspec

from gpudoctor.facts.measured import Load, Measured, StageFailure
from gpudoctor.probes.measure_boards import Device, devices_of, load, look, nvml_if_any, untouched, used_by_others
from gpudoctor.probes.measure_worker import Answer, Worker
from gpudoctor.probes.nvml import BoardLost, Nvml
from gpudoctor.probes.system import NotRead, System

LONGEST_S = 270.0
"""Below the deadline that collect keeps, after which nothing that was measured would be told."""
RESERVED_S = 2.0
"""Of the time given: for ending children and telling."""
COMPILE_S, PEER_S = 120.0, 20.0
LOADERS = (("fork", "file_descriptor"), ("fork", "file_system"), ("spawn", "file_descriptor"))
OURS = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING")
"""Variables that would change what is measured: the hardware is meant, not the settings. Rules judge those."""


@dataclass
class Bench:
    """What is known so far, and how much time is left."""

    system: System
    python: str
    ends_at: float
    environ: dict[str, str]
    folder: Path
    facts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failures: list[StageFailure] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)

    def left_s(self) -> float:
        """Of the time for all."""
        return self.ends_at - time.monotonic()

    def wanted(self, stage: str) -> bool:
        """Which devices there are is always asked."""
        return self.system.stages is None or stage in self.system.stages or stage == "devices"

    def worker(self) -> Worker:
        """A new child, started when it is first asked."""
        return Worker(self.python, self.environ)

    def ask(
        self,
        worker: Worker,
        stage: str,
        arguments: list[Any],
        deadline_s: float,
        *,
        devices: tuple[Device, ...] = (),
        look: Callable[[], None] | None = None,
    ) -> dict[str, Any] | None:
        """What the stage told, kept too; None where it failed, which is kept as well, or where no time is left."""
        gpus = tuple(device.index for device in devices)
        name = " ".join([stage, *(str(word) for word in arguments if isinstance(word, str))])
        where = f" on GPU {' and '.join(map(str, gpus))}" if gpus else ""
        if not self.wanted(stage):
            return None
        if self.left_s() < 2:
            self.unread[f"{name}{where}"] = "no time left"
            return None
        self.system.tell(name + where)
        answer = worker.ask(stage, arguments, min(deadline_s, self.left_s()), look)
        return self.take(stage, gpus, answer, {device.number: device.index for device in devices})

    def begin(self, worker: Worker, stage: str, device: Device | None) -> bool:
        """Ask without waiting, where time is left."""
        if not self.wanted(stage):
            return False
        if self.left_s() < 2:
            self.unread[stage] = "no time left"
            return False
        worker.begin(stage, [device.number if device else None], min(COMPILE_S, self.left_s()))
        return True

    def end(self, worker: Worker, stage: str, device: Device | None) -> None:
        """Wait for what was begun."""
        self.system.tell(stage)
        gpus = () if device is None else (device.index,)
        self.take(stage, gpus, worker.wait(), {} if device is None else {device.number: device.index})

    def take(
        self, stage: str, gpus: tuple[int, ...], answer: Answer, indices: dict[int, int] | None = None
    ) -> dict[str, Any] | None:
        """Keep an answer, with torch's numbers turned into NVML's."""
        if answer.failed:
            self.failures.append(
                StageFailure(
                    stage=stage,
                    gpus=gpus,
                    error=answer.error,
                    signal=answer.signal,
                    exit_code=answer.exit_code,
                    timed_out=answer.timed_out,
                    deadline_s=answer.deadline_s if answer.timed_out else None,
                    stack=answer.stack,
                )
            )
            return None
        for name, rows in answer.facts.items():
            if isinstance(rows, list) and name in _TABLES:
                self.facts.setdefault(name, []).extend(_renumbered(row, indices or {}) for row in rows)
        return answer.facts


_TABLES = frozenset({"gemm", "memory", "host_links", "launches", "features", "loaders", "peers", "collectives"})


def _renumbered(row: dict[str, Any], indices: dict[int, int]) -> dict[str, Any]:
    return {
        name: indices.get(value, value) if name in {"gpu", "first", "second"} and value is not None else value
        for name, value in row.items()
    }


def read(system: System) -> Measured:
    """All that the time allows. Raises NotRead where torch cannot be imported or CUDA does not start."""
    if not system.live:
        raise NotRead("a recorded machine has no hardware to measure")
    python = which(system.python, path=system.environ.get("PATH", os.defpath))
    if python is None:
        raise NotRead(f"{system.python} not found")
    began = time.monotonic()
    with ExitStack() as stack:
        folder = system.scratch or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudoctor-")))
        bench = Bench(
            system=system,
            python=python,
            ends_at=began + min(LONGEST_S, system.timeout_s) - RESERVED_S,
            environ=_environment(system, folder),
            folder=folder,
        )
        nvml = stack.enter_context(nvml_if_any(system))
        worker = stack.enter_context(bench.worker())
        shared = _measure(bench, worker, nvml)
    return Measured(
        **{name: msgspec.convert(rows, type=_TYPES[name], strict=False) for name, rows in bench.facts.items()},
        loads=tuple(bench.loads),
        failures=tuple(bench.failures),
        shared=shared,
        duration_s=round(time.monotonic() - began, 1),
        unread=bench.unread,
    )


_TYPES = {item.name: item.type for item in msgspec.structs.fields(Measured)}


def _environment(system: System, folder: Path) -> dict[str, str]:
    environ = {name: value for name, value in system.environ.items() if name not in OURS}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environ.pop(name, None)
    # What compilers leave behind goes with our own folder.
    return {
        **environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _measure(bench: Bench, worker: Worker, nvml: Nvml | None) -> tuple[int, ...]:
    """Each GPU alone, then pairs, then all; then what needs no GPU. Returns the GPUs that others use, measured all the
    same."""
    # Before a child of ours touches a board: in a container its process could not be told from those of others.
    boards = untouched(bench.system, nvml)
    found = bench.ask(worker, "devices", [], 90)
    if found is None:
        raise NotRead(f"torch in a child: {_in_words(bench.failures[-1])}" if bench.failures else "no time left")
    devices = devices_of(found, boards)
    free, taken = _free(bench, devices)
    for device in free:
        _alone(bench, worker, device, nvml)
    if not devices:
        _on_the_cpu(bench, worker)
    for first in free:
        for second in free:
            if first.number != second.number:
                bench.ask(worker, "peer", [first.number, second.number], PEER_S, devices=(first, second))
    worker.close()
    _together(bench, found, free, alone=not devices)
    with bench.worker() as compiler:
        # A compiler and loaders want CPUs, not figures that nobody disturbs: they share the time.
        first_free = free[0] if free else None
        compiles = bool(free or not devices) and bench.begin(compiler, "compile", first_free)
        _loaders(bench)
        if compiles:
            bench.end(compiler, "compile", first_free)
    return taken if bench.system.force else ()


def _in_words(failure: StageFailure) -> str:
    if failure.timed_out:
        return f"no answer in {failure.deadline_s:.0f} s"
    if failure.signal is not None:
        return f"died by signal {failure.signal}"
    return failure.error or f"ended with exit code {failure.exit_code}"


def _free(bench: Bench, devices: list[Device]) -> tuple[list[Device], tuple[int, ...]]:
    """Those to be measured, and the indices of those that others use."""
    taken: dict[int, str] = {}
    for device in devices:
        if device.board is not None and (why := used_by_others(device.board)):
            taken[device.index] = why
            if not bench.system.force:
                bench.unread[f"GPU {device.index}"] = f"{why}; --force measures it all the same"
    if bench.system.force:
        return devices, tuple(taken)
    return [device for device in devices if device.index not in taken], tuple(taken)


def _alone(bench: Bench, worker: Worker, device: Device, nvml: Nvml | None) -> None:
    """One GPU, looked at by NVML while it works."""
    for stage, deadline_s in (("gemm", 40), ("memory", 20), ("host_link", 20), ("launch", 20), ("features", 40)):
        looks: list[dict[str, Any]] = []
        watch = None
        if nvml is not None and device.handle is not None and stage in {"gemm", "host_link"}:
            watch = partial(_watch, nvml, device.handle, looks)
        bench.ask(worker, stage, [device.number], deadline_s, devices=(device,), look=watch)
        if looks:
            bench.loads.append(load(device.index, stage, looks))


def _watch(nvml: Nvml, handle: Any, looks: list[dict[str, Any]]) -> None:
    with suppress(BoardLost):
        looks.append(look(nvml, handle))


def _on_the_cpu(bench: Bench, worker: Worker) -> None:
    for stage, deadline_s in (("gemm", 40), ("memory", 20), ("features", 40)):
        bench.ask(worker, stage, [None], deadline_s)


def _together(bench: Bench, found: dict[str, Any], free: list[Device], *, alone: bool) -> None:
    """One process a GPU over NCCL; where there is no GPU, two over gloo."""
    if not bench.wanted("collective"):
        return
    ranks = 2 if alone else len(free)
    backend = "gloo" if alone else "nccl"
    if ranks < 2:
        return  # One GPU alone has nobody to talk to.
    if not found[backend]:
        bench.unread["collectives"] = f"this torch has no {backend}"
        return
    if bench.left_s() < 5:
        bench.unread["collectives"] = "no time left"
        return
    bench.system.tell(f"collectives over {ranks} {'processes' if alone else 'GPUs'}")
    deadline_s = min(90.0, bench.left_s())
    store = str(bench.folder / "store")
    with ExitStack() as stack:
        workers = [stack.enter_context(bench.worker()) for _ in range(ranks)]
        for rank, worker in enumerate(workers):
            gpu = None if alone else free[rank].number
            worker.begin("collective", [backend, rank, ranks, store, gpu], deadline_s)
        ends_at = time.monotonic() + deadline_s
        answers = _all_answers(workers, ends_at)
    _take_collective(bench, answers, [device.index for device in free])


def _all_answers(workers: list[Worker], ends_at: float) -> list[Answer | None]:
    """None for one that was still waiting when another failed: it is no culprit."""
    answers: list[Answer | None] = [None] * len(workers)
    while any(answer is None for answer in answers):
        for rank, worker in enumerate(workers):
            if answers[rank] is None:
                answers[rank] = worker.poll(0.05)
        if any(answer is not None and answer.failed for answer in answers):
            # The others may have more to say, or have failed at the same moment.
            for rank, worker in enumerate(workers):
                answers[rank] = answers[rank] or worker.poll(0.5)
            break
        if time.monotonic() > ends_at:
            return [answer or worker.too_late() for answer, worker in zip(answers, workers, strict=True)]
    return answers


def _take_collective(bench: Bench, answers: list[Answer | None], gpus: list[int]) -> None:
    failed = [rank for rank, answer in enumerate(answers) if answer is not None and answer.failed]
    if failed:
        # One that died says more than those that lost it.
        rank = min(failed, key=lambda rank: (answers[rank].signal is None, rank))  # type: ignore[union-attr]
        which_gpus = tuple(gpus) if answers[rank].timed_out else tuple(gpus[rank : rank + 1])  # type: ignore[union-attr]
        bench.take("collective", which_gpus, answers[rank])  # type: ignore[arg-type]
        return
    for answer in answers:
        if answer is not None:
            bench.take("collective", (), answer)


def _loaders(bench: Bench) -> None:
    """In a process that never touched CUDA, as workers are forked in most jobs; both ways to start a worker, and both
    ways to share memory."""
    with bench.worker() as worker:
        for method, sharing in LOADERS if os.name == "posix" else LOADERS[-1:]:
            told = bench.ask(worker, "loader", [method, sharing, 2], 60)
            if told is None and bench.failures and bench.failures[-1].stage == "loader":
                failure = bench.failures.pop()
                said = f"{method}, {sharing}: {failure.error or _in_words(failure)}"
                bench.failures.append(msgspec.structs.replace(failure, error=said))
            if told is None or not all(row["ok"] for row in told["loaders"]):
                worker.close()  # A worker that died by a bus error may leave it in no state for another.
