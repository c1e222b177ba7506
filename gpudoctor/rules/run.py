"""Rules on the run as a whole: nothing measured, failed, stuck, getting slower."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from gpudoctor.facts.run import Rank
from gpudoctor.findings import Cost, Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.losses import ms, named
from gpudoctor.run import Run

LEAST_STEPS = 60
DRIFT = 0.10
BLOCKS = 60
NOISE = 4.0  # standard errors
SIGNALS = {129: "SIGHUP", 130: "SIGINT", 132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL"}
SIGNALS |= {139: "SIGSEGV", 143: "SIGTERM"}
INTERRUPTED = 130
THREAD = re.compile(r"^(Thread|Process|Python v)\b")


@rule(
    "RUN001",
    "too-few-steps",
    Severity.WARNING,
    why="without whole steps in a trace nobody knows where their time goes",
    fix=(
        Fix("give the job more steps, or start earlier", "gpudoctor profile --wait 2 --steps 3 train.py"),
        Fix("mark the steps of a trace of your own: torch.profiler.schedule(…), and profiler.step() after each"),
    ),
    confirm="look for ProfilerStep in the trace",
    source="docs/architecture.md, how steps are recognised",
    because=("RUN002", "RUN003"),
)
def too_few_steps(run: Run) -> Iterator[Evidence]:
    """No whole step could be measured on some rank; the finding says why. An info where only step marks are missing.

    Silent where nothing was run.
    """
    reasons: dict[str, list[Rank]] = defaultdict(list)
    for rank in run.ranks:
        if rank.shares is None:
            reasons[_reason(rank)].append(rank)
    for reason, ranks in reasons.items():
        yield Evidence(
            where=named(ranks, len(run.ranks)), what="whole steps", seen=f"none: {reason}", wanted="2 or more"
        )
    unmarked = [rank for rank in run.ranks if rank.shares is not None and rank.steps is None]
    if unmarked:
        yield Evidence(
            where=named(unmarked, len(run.ranks)),
            what="step marks",
            seen="none: the shares are of the whole trace",
            wanted="ProfilerStep",
            severity=Severity.INFO,
        )
    if not run.ranks and run.command is not None:
        seen = "none: no process of the job trained" + (f"; {next(iter(run.missing.values()))}" if run.missing else "")
        yield Evidence(what="whole steps", seen=seen, wanted="2 or more")


def _reason(rank: Rank) -> str:
    job = rank.job
    if rank.damage:
        return rank.damage
    if job is None:
        return "no trace of it"
    if job.agent_error:
        return f"the agent switched itself off ({job.agent_error.strip().splitlines()[-1]})"
    if job.profiler_busy:
        return "the job runs torch.profiler itself, and only one can run; see `gpudoctor analyze` for its traces"
    if not job.steps_seen:
        return "no step was seen: no optimizer stepped and no loader was iterated"
    if not job.timed_steps:
        return f"the job ended in the warm-up, after {job.steps_seen} steps"
    return f"the job ended before its trace was whole, after {job.steps_seen} steps"


@rule(
    "RUN002",
    "script-failed",
    Severity.ERROR,
    why="the job ended with an error; what was seen until then is reported all the same",
    fix=Fix("see the last lines it wrote, and the findings on them"),
    confirm="run the same command without gpudoctor; echo $?",
    source="exit code of the job; 128 + N where signal N ended it",
)
def script_failed(run: Run) -> Iterator[Evidence]:
    """The job ended by itself with an exit code other than 0.

    Silent where gpudoctor ended it, and where the user interrupted it.
    """
    code = run.exit_code
    if not code or run.ended_by_us or run.stalled_s is not None:
        return
    number = 128 - code if code < 0 else code
    if number == INTERRUPTED:
        return
    lines = [line.strip() for line in (run.error_text or "").splitlines() if line.strip()]
    ended = f"{code} ({SIGNALS[number]})" if number in SIGNALS else str(code)
    yield Evidence(what="exit code", seen=ended, wanted="0")
    if lines:
        yield Evidence(what="last line of its error", seen=lines[-1][:300], wanted="none", source="standard error")


@rule(
    "RUN003",
    "no-progress",
    Severity.ERROR,
    why="the job hangs: it holds its GPUs and will not end by itself",
    fix=(
        Fix("look where the ranks stand: those that wait in a collective wait for one that is elsewhere"),
        Fix("give a slow start more time", "gpudoctor profile --stall-timeout 900 train.py"),
    ),
    confirm="py-spy dump --pid PID, twice",
    source="no step for the time that --stall-timeout allows",
)
def no_progress(run: Run) -> Iterator[Evidence]:
    """No step ended for the stall time-out. The stacks of the ranks are grouped by where they stand."""
    if run.stalled_s is None:
        return
    yield Evidence(what="no step for", seen=f"{run.stalled_s:.0f} s", wanted="a step now and then")
    groups: dict[str, list[str]] = defaultdict(list)
    for title, stack in run.stacks.items():
        groups[_standing(stack)].append(title)
    for place, titles in sorted(groups.items(), key=lambda group: len(group[1])):
        who = ", ".join(titles[:8]) + (f" and {len(titles) - 8} more" if len(titles) > 8 else "")
        yield Evidence(what=f"{who} in", seen=place, wanted="progress", source="py-spy")


def _standing(stack: str) -> str:
    """The innermost frames of the first thread, without addresses and numbers of threads."""
    frames: list[str] = []
    for line in stack.splitlines():
        text = line.strip()
        if frames and not text:
            break
        if text and not THREAD.match(text):
            frames.append(re.sub(r"0x[0-9a-f]+", "0x…", text))
    return " ← ".join(frames[:4])[:400] or "unknown"


@rule(
    "RUN004",
    "slowing-down",
    Severity.WARNING,
    why="a job that slows down by some per cent in minutes takes far longer than its first steps promise",
    fix=(
        Fix("look for what grows: lists of losses that keep their graph (use loss.detach()), logs, caches"),
        Fix("look for what heats up: clocks and temperatures over the run", "nvidia-smi dmon -s pc"),
    ),
    confirm="print the time of every 100th step",
    source="Theil-Sen slope and medians of the thirds of the run; 10 % and 60 steps are our bounds",
)
def slowing_down(run: Run) -> Iterator[Evidence]:
    """Step time rises over the run by at least 10 %: last third against first, by the slope too, and beyond the noise.

    Silent below 60 steps, and where the middle third is slower than the last (a passing disturbance).
    """
    rank = next((rank for rank in run.ranks if rank.job and len(rank.job.step_times_ms) >= LEAST_STEPS), None)
    times = rank.job.step_times_ms if rank and rank.job else ()
    third = len(times) // 3
    if not third:
        return
    first, middle, last = (statistics.median(part) for part in (times[:third], times[third:-third], times[-third:]))
    noise = NOISE * (_error(times[:third]) + _error(times[-third:]))
    rise = _slope(times) * len(times)
    if first <= 0 or last - first < max(DRIFT * first, noise) or rise < DRIFT * first or not first <= middle <= last:
        return
    yield Evidence(
        where="" if len(run.ranks) < 2 or rank is None else f"rank {rank.rank}",
        what="step time, first and last third of the run",
        seen=f"{ms(first)} → {ms(last)} ms over {len(times)} steps",
        wanted=f"within {DRIFT:.0%}",
        cost=Cost(share_of_step=(last - first) / last, step_ms_now=last, step_ms_at_best=first),
    )
    yield from _clocks(run)


def _error(times: tuple[float, ...]) -> float:
    """Standard error of the median, from the quartiles, so that a few long steps do not count."""
    low, _, high = statistics.quantiles(times, n=4)
    return float(1.2533 * (high - low) / 1.349 / len(times) ** 0.5)


def _slope(times: tuple[float, ...]) -> float:
    """Theil–Sen, milliseconds a step, over the medians of at most 60 blocks."""
    width = max(1, len(times) // BLOCKS)
    blocks = [statistics.median(times[at : at + width]) for at in range(0, len(times) - width + 1, width)]
    pairs = combinations(range(len(blocks)), 2)
    return statistics.median((blocks[later] - blocks[sooner]) / (later - sooner) for sooner, later in pairs) / width


def _clocks(run: Run) -> Iterator[Evidence]:
    """A clock that fell meanwhile, as far as NVML was watched."""
    for board in run.watch.gpus if run.watch else ():
        clocks = [
            clock
            for clock, used in zip(board.clock_sm_mhz, board.utilization_ratio, strict=False)
            if clock and (used or 0.0) > 0.5
        ]
        third = len(clocks) // 3
        if third >= 3 and board.holders:
            first, last = statistics.median(clocks[:third]), statistics.median(clocks[-third:])
            if last < 0.95 * first:
                seen = f"{first:.0f} → {last:.0f} MHz"
                yield Evidence(what=f"SM clock of GPU {board.index}", seen=seen, wanted="steady", source="NVML")


RULES: tuple[Rule[Run], ...] = (too_few_steps, script_failed, no_progress, slowing_down)
