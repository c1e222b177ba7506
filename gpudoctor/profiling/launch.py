"""Start the user's job with the agent in it, watch its progress, and end it where it hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

AGENT = Path(__file__).parent / "agent"
INJECT = Path(__file__).parent / "inject"
POLL_S = 0.1
START_FACTOR = 6
"""Before its first step a job may take so many times the stall timeout: it loads data, tokenises, compiles."""
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL."""


class LaunchError(ValueError):
    """The job cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class Plan:
    """What is run, and how it is looked at."""

    command: tuple[str, ...]
    folder: Path
    """The run folder; it exists."""
    wait: int = 5
    """Steps of warm-up."""
    steps: int = 6
    """Steps in the trace."""
    run_to_end: bool = False
    stall_timeout_s: float = 300.0
    """Without a step for so long, the job is taken to hang."""


@dataclass(frozen=True)
class Progress:
    """One rank at one moment."""

    rank: int
    step: int
    phase: str
    pid: int


@dataclass(frozen=True)
class Stack:
    """The stacks of one process, as py-spy tells them."""

    pid: int
    rank: int | None
    threads: tuple[tuple[str, ...], ...] = ()
    """Innermost frame first, each `function (file:line)`."""
    error: str | None = None


@dataclass
class Outcome:
    """How the job ended."""

    exit_code: int
    """The job's own; 128 + N where signal N ended it, as a shell says."""
    duration_s: float
    stalled_s: float | None = None
    """It was ended because no step came for so long."""
    stacks: tuple[Stack, ...] = field(default_factory=tuple)
    interrupted: bool = False


def command_line(python: str, words: Sequence[str], *, processes: int | None = None) -> tuple[str, ...]:
    """The command that runs the words: `SCRIPT ARGS…`, `-m MODULE ARGS…`, or a launcher's whole line.

    With `processes` a script or module is run under torchrun, even if it is one. A launcher's line (`torchrun …`,
    `accelerate launch …`, `python -m …`) stays as it is. Raises LaunchError where there is nothing to run.
    """
    first = words[0]
    if first == "-m" or first.endswith(".py") or shutil.which(first) is None:
        if first == "-m" and len(words) < 2:
            raise LaunchError("-m wants the name of a module")
        if first != "-m" and not Path(first).is_file():
            raise LaunchError(f"{first} is neither a file nor a program on PATH; give a script, or `-m MODULE`")
        if processes is None:
            return (python, *words)
        torchrun = (python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
        return (*torchrun, *words)
    if processes is not None:
        raise LaunchError(f"--nproc-per-node is for scripts; {first} starts its own processes, so say it there")
    return tuple(words)


def environment(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """The job's environment: the user's own, and the agent first on PYTHONPATH."""
    path = environ.get("PYTHONPATH")
    return {
        # Kineto announces each start and stop on stderr, which is the script's.
        "KINETO_LOG_LEVEL": "9",
        **environ,
        "PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else str(INJECT),
        "GPUDOCTOR_AGENT": str(AGENT),
        "GPUDOCTOR_RUN": str(plan.folder.resolve()),
    }


def launch(
    plan: Plan,
    environ: Mapping[str, str],
    *,
    tell: Callable[[list[Progress]], None] = lambda _: None,
) -> Outcome:
    """Run the job to its end. Its input, output, working directory and signals are its own.

    `tell` is called with the progress of the ranks known, about ten times a second.
    """
    config = {"wait": plan.wait, "steps": plan.steps, "run_to_end": plan.run_to_end}
    (plan.folder / "config.json").write_text(json.dumps(config))
    start = time.monotonic()
    try:
        process = subprocess.Popen(plan.command, env=environment(plan, environ))
    except OSError as error:
        raise LaunchError(f"cannot start {plan.command[0]}: {error.strerror}") from error
    outcome = Outcome(0, 0.0)
    with _signals_of(process, outcome):
        last_step, last_change = -1, time.monotonic()
        while process.poll() is None:
            progress = list(read_progress(plan.folder))
            tell(progress)
            steps = sum(rank.step for rank in progress)
            limit_s = plan.stall_timeout_s * (1 if progress else START_FACTOR)
            if steps != last_step:
                last_step, last_change = steps, time.monotonic()
            elif time.monotonic() - last_change > limit_s:
                outcome.stalled_s = limit_s
                outcome.stacks = tuple(stacks(progress))
                _end(process)
                break
            _wait(process, POLL_S)
    code = process.wait()
    outcome.exit_code = code if code >= 0 else 128 - code
    outcome.duration_s = time.monotonic() - start
    tell(list(read_progress(plan.folder)))
    return outcome


def read_progress(folder: Path) -> Iterator[Progress]:
    """Of every process that has ended a step, by rank."""
    found = []
    for path in folder.glob("progress-*"):
        try:
            rank, step, phase = path.read_text().split()
            found.append(Progress(int(rank), int(step), phase, int(path.name.rpartition("-")[2])))
        except (OSError, ValueError):
            continue  # being written at this moment
    yield from sorted(found, key=lambda progress: progress.rank)


def stacks(progress: Sequence[Progress]) -> Iterator[Stack]:
    """What every rank is doing right now."""
    tool = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    for rank in progress:
        if tool is None:
            yield Stack(rank.pid, rank.rank, error="py-spy not found")
            continue
        try:
            done = subprocess.run(
                [tool, "dump", "--json", "--pid", str(rank.pid)], capture_output=True, timeout=10, check=True
            )
            threads = msgspec.json.decode(done.stdout, type=list[_Thread])
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["failed"]
            yield Stack(rank.pid, rank.rank, error=f"py-spy: {last[0]}")
        except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
            yield Stack(rank.pid, rank.rank, error=f"py-spy: {error}")
        else:
            yield Stack(
                rank.pid,
                rank.rank,
                tuple(
                    tuple(f"{frame.name} ({frame.filename}:{frame.line})" for frame in thread.frames)
                    for thread in threads
                ),
            )


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    frames: list[_Frame]


@contextmanager
def _signals_of(process: subprocess.Popen[bytes], outcome: Outcome) -> Iterator[None]:
    """Ctrl-C reaches the job by itself, since it shares the terminal; SIGTERM is passed on. The job is waited for."""

    def interrupted(number: int, _: object) -> None:
        outcome.interrupted = True
        if number == signal.SIGTERM:
            process.send_signal(number)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """The launcher passes SIGTERM on to its ranks; what does not listen is killed with all below it."""
    import psutil

    below = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    _wait(process, GRACE_S)
    for child in [*below, psutil.Process(process.pid)] if process.poll() is None else below:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
