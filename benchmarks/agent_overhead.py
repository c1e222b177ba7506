"""Length of a training step with the agent in the process, outside of its profiler window, against one without.

    python benchmarks/agent_overhead.py [--seconds 30] [--starts 9] [--python PATH]

Three processes run the same loop: one plain, one whose agent waits for its window, one whose agent has been through it
(`--run-to-end`). They take turns of a few steps, and only one runs at a time, so that a busy machine slows all of them
alike; the ratio is taken of the medians of neighbouring turns, and the median of the ratios counts. They are started
anew, for where a process's memory comes to lie is worth a percent too, until the ratio is known to half a percent or
the starts are used up (--starts): a quiet machine is done after the first few. On a CPU the time is that of the
process's one thread on its CPU, which is the step's own length without what other programs take from it; on a GPU it
is the wall clock's. Exit code 1 above 1.01, whatever the noise, which is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpudoctor.profiling.launch import Plan, environment

LIMIT = 1.01
LOOPS = (("cpu", 5.0), ("cpu", 50.0), ("cuda", 5.0))
"""Device, and milliseconds that a step should take."""
TURN_MS = 60.0
LEAST_STEPS = 3
"""Of a turn."""
LEAST_STARTS = 3
KNOWN_TO = 0.005

# Sizes itself once, then runs as many steps as each line on its input asks for and prints their median in milliseconds.
# The loss is read at every step: the host's time then counts on a GPU too.
JOB = """
import itertools, json, statistics, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

device, repeat, target_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)

class Numbers(Dataset):
    rows = torch.randn(512, 256)
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        return self.rows[index % 512]

layers = [torch.nn.Linear(256, 256) for _ in range(4)]
model = torch.nn.Sequential(*itertools.chain(*((layer, torch.nn.ReLU()) for layer in layers))).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

clock = time.perf_counter if device == "cuda" else time.process_time

def loop(repeat):
    last = clock()
    for rows in DataLoader(Numbers(), batch_size=16):
        rows = rows.to(device)
        for _ in range(repeat):  # and no larger batch: what stays in the cache takes the same time each time
            loss = model(rows).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        now = clock()
        yield (now - last) * 1e3
        last = clock()

def median(steps, count):
    return statistics.median(itertools.islice(steps, count))

if not repeat:
    repeat = 1
    while median(loop(repeat), 7) < target_ms:
        repeat = max(repeat + 1, int(repeat * 1.2))
    print(json.dumps(repeat), flush=True)
    raise SystemExit
steps = loop(repeat)
for line in sys.stdin:
    next(steps)  # what lies between two turns belongs to this one
    print(json.dumps(median(steps, int(line))), flush=True)
"""


class Job:
    """One process that waits for its turns."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )

    def turn(self, steps: int) -> float:
        """Median milliseconds of a step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        """Its input ends, and so does it."""
        self.process.communicate()


def agent(folder: Path, *, wait: int) -> dict[str, str]:
    """The environment `gpudoctor profile --run-to-end` gives the job."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"wait": wait, "steps": 3, "run_to_end": True}))
    return environment(Plan(command=(), folder=folder), os.environ)


def phase(folder: Path) -> str:
    """That the agent in this folder's process is in."""
    (progress,) = folder.glob("progress-*")
    return progress.read_text().split()[2]


def ratios(command: list[str], steps: int, seconds: float) -> tuple[list[float], list[float], list[float]]:
    """Of one start: milliseconds without the agent, and the ratios before and after its window."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before, after = folder / "before", folder / "after"
        jobs = {
            "plain": Job(command, dict(os.environ)),
            "before": Job(command, agent(before, wait=10**9)),
            "after": Job(command, agent(after, wait=2)),
        }
        for job in jobs.values():
            job.turn(60)  # through the window: 2 to warm up, 20 timed, the trace
        if (phase(before), phase(after)) != ("warm-up", "done"):
            raise SystemExit(f"the agent did not get where it should: {phase(before)}, {phase(after)}")
        plain, first, second = [], [], []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            order = list(jobs)
            random.shuffle(order)
            took = {name: jobs[name].turn(steps) for name in order}
            plain.append(took["plain"])
            first.append(took["before"] / took["plain"])
            second.append(took["after"] / took["plain"])
        for job in jobs.values():
            job.end()
    return plain, first, second


def error(values: list[float]) -> float:
    """Half the width of the interval in which the median lies in 95 of 100 cases, by the order of the values."""
    ranked, middle, spread = sorted(values), len(values) / 2, 0.98 * len(values) ** 0.5
    low, high = max(0, round(middle - spread)), min(len(values) - 1, round(middle + spread))
    return (ranked[high] - ranked[low]) / 2


def main() -> int:
    """Print one line a loop and phase."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=30.0, help="for each loop and start")
    options.add_argument("--starts", type=int, default=9, help="at most")
    options.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    arguments = options.parse_args()
    gpu = "import torch; print(torch.cuda.is_available())"
    has_gpu = subprocess.run([arguments.python, "-c", gpu], capture_output=True, text=True, check=True).stdout.strip()
    missed = False
    for device, target_ms in LOOPS:
        if device == "cuda" and has_gpu != "True":
            print("no GPU: its loop is left out")
            continue
        command = [arguments.python, "-c", JOB, device, "0", str(target_ms)]
        command[4] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        steps = max(LEAST_STEPS, round(TURN_MS / target_ms))
        plain: list[float] = []
        found: dict[str, list[float]] = {"before": [], "after": []}
        for start in range(arguments.starts):
            took, before, after = ratios(command, steps, arguments.seconds)
            plain += took
            found["before"] += before
            found["after"] += after
            if start + 1 >= LEAST_STARTS and all(error(values) <= KNOWN_TO for values in found.values()):
                break
        for when, values in found.items():
            ratio = statistics.median(values)
            held = ratio <= LIMIT
            missed |= not held
            print(
                f"{device:<4}  step {statistics.median(plain):6.2f} ms   agent {when:<6} its window: x {ratio:.4f} "
                f"± {error(values):.4f}   ({len(values)} pairs)   wanted <= {LIMIT}   {'ok' if held else 'MISSED'}",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
