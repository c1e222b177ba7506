"""Trace analysis beside HolisticTraceAnalysis on one large trace, in one run: time, memory, and whether they agree.

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis
    python benchmarks/trace_speed.py --hta /tmp/hta/bin/python

The trace is a recorded one repeated, with NCCL kernels added that are partly hidden. Ratios count, not seconds: both
run on the same cores, one after the other, as whole processes without their imports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "tests/recorded/traces/healthy.rank0.json.gz"

OURS = """
import json, resource, sys, time
from pathlib import Path
from gpudoctor.profiling.digest import digest

if __name__ == "__main__":
    begin = time.perf_counter()
    rank = digest(Path(sys.argv[1]), workers=int(sys.argv[2]))
    took = time.perf_counter() - begin
    window = rank.window_ns[1] - rank.window_ns[0]
    usage = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({
        "seconds": took, "peak_mb": max(usage), "idle": 1 - rank.busy_ns / window, "compute": rank.shares.compute,
        "overlap": rank.hidden_communication_ns / rank.communication_ns,
    }))
"""

HTA = """
import json, logging, resource, sys, time
from pathlib import Path
from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)
begin = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=str(Path(sys.argv[1]).parent))
loaded = time.perf_counter()
parts = analysis.get_temporal_breakdown(visualize=False).iloc[0]
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
took = time.perf_counter() - begin
print(json.dumps({
    "seconds": took, "load_seconds": loaded - begin,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "idle": parts["idle_time(us)"] / parts["kernel_time(us)"],
    "compute": parts["compute_time(us)"] / parts["kernel_time(us)"],
    "overlap": overlap["comp_comm_overlap_pctg"] / 100,
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=500, help="size of the trace (default: 500)")
    parser.add_argument("--hta", help="python of an environment with HolisticTraceAnalysis (default: ours alone)")
    parser.add_argument("--rounds", type=int, default=1, help="the least time of so many counts (default: 1)")
    parser.add_argument("--trace", type=Path, help="keep the trace here, and use it where it is there already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace or Path(folder) / "large.json"
        if not trace.exists():
            write(trace, options.megabytes * 10**6)
        print(f"{trace.stat().st_size / 1e6:.0f} MB, cores here: {len(os.sched_getaffinity(0))}")
        compare(trace, options.hta, options.rounds)


def compare(trace: Path, hta: str | None, rounds: int) -> None:
    """Print ours on one core and on two, and HTA's on as many; HTA does not use the second for one trace."""
    for cores in (1, 2):
        ours, theirs = [], []
        for _ in range(rounds):  # in turns, so that a busy machine slows both alike
            ours.append(run(sys.executable, OURS, [str(trace), str(cores)], cores))
            if hta is not None:
                theirs.append(run(hta, HTA, [str(trace)], cores))
        quickest = min(ours, key=seconds)
        print(f"{cores} core(s)  ours {line(quickest)}", flush=True)
        if theirs:
            print(f"{cores} core(s)  HTA  {line(min(theirs, key=seconds))}")
            print(f"{cores} core(s)  × {seconds(min(theirs, key=seconds)) / seconds(quickest):.1f} faster", flush=True)


def seconds(found: dict[str, Any]) -> float:
    return float(found["seconds"])


def run(python: str, script: str, arguments: list[str], cores: int) -> dict[str, Any]:
    """One process on so many cores."""
    with tempfile.TemporaryDirectory() as folder:
        # A file, because worker processes import the main module again.
        path = Path(folder) / "measured.py"
        path.write_text(script)
        allowed = set(sorted(os.sched_getaffinity(0))[:cores])
        output = subprocess.run(
            [python, str(path), *arguments],
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        ).stdout
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def line(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3f}" if value < 1 else f"{name} {value:.1f}" for name, value in found.items())


NUMBERS = re.compile(r'(?P<ts>"ts": )[\d.]+|(?P<id>"(?:correlation|External id)": |(?<=, )"id": )\d+')


def write(path: Path, size: int) -> None:
    """Repeat the recorded trace, each time later and with ids of its own."""
    text = gzip.decompress(RECORDED.read_bytes()).decode()
    head, rest = text.split('"traceEvents": [', 1)
    body, tail = rest.rsplit("\n  ],", 1)
    spans = [event for event in json.loads(text)["traceEvents"] if event.get("cat") in ("kernel", "cpu_op")]
    first = min(event["ts"] for event in spans)
    length = max(event["ts"] + event["dur"] for event in spans) - first + 2000
    pieces = list(_pieces(_without_leftovers(body)))
    repetitions = size // len(body) + 1
    with path.open("w") as file:
        file.write(head + '"traceEvents": [')
        for number in range(repetitions):
            file.write("," * (number > 0))
            file.write("".join(piece if isinstance(piece, str) else _moved(piece, number, length) for piece in pieces))
            file.write("".join(_reduction(first + number * length, length, number, part) for part in range(4)))
        for step in range(STEPS):
            begin, end = (round(repetitions * bound / STEPS) for bound in (step, step + 1))
            file.write(_step(step, first + begin * length, (end - begin) * length))
        file.write("\n  ]," + tail)


STEPS = 8
"""Large traces have few steps of many events; HTA takes time in proportion to steps × events."""


def _step(number: int, start: float, length: float) -> str:
    """The marks of one step, as the host sees it and as the device does."""
    return "".join(
        f',\n  {{\n    "ph": "X", "cat": "{category}", "name": "ProfilerStep#{number}", {where},\n'
        f'    "ts": {start:.3f}, "dur": {length - 1:.3f},\n    "args": {{\n      "External id": {number}\n    }}\n  }}'
        for category, where in (
            ("user_annotation", '"pid": 460, "tid": 460'),
            ("gpu_user_annotation", '"pid": 0, "tid": 7'),
        )
    )


def _without_leftovers(body: str) -> str:
    """Leave out what the step before the trace launched, which is nobody's work here, and the steps' own marks."""
    events = [event for event in re.split(r",(?=\n  \{)", body) if "ProfilerStep#" not in event]
    calls = {
        found for event in events if '"cat": "cuda_' in event for found in re.findall(r'"correlation": (\d+)', event)
    }
    return ",".join(
        event
        for event in events
        if '"pid": 0, "tid": 7,' not in event or set(re.findall(r'"correlation": (\d+)', event)) <= calls
    )


def _pieces(body: str) -> Iterator[str | tuple[str, float]]:
    """The text, with each number that differs between repetitions taken out as (what it is, value)."""
    end = 0
    for found in NUMBERS.finditer(body):
        kind = found.lastgroup or ""
        yield body[end : found.end(kind)]
        yield kind, float(body[found.end(kind) : found.end()])
        end = found.end()
    yield body[end:]


def _moved(piece: tuple[str, float], number: int, length: float) -> str:
    kind, value = piece
    if kind == "ts":
        return f"{value + number * length:.3f}"
    return str(int(value) + number * 200_000)


def _reduction(start: float, length: float, number: int, part: int) -> str:
    """An all-reduce of 5 ms, of which the last of a repetition runs on while nothing else does."""
    correlation = number * 200_000 + 199_000 + part
    begin = start + length * (part + 1) / 4 - 5500
    thread = '"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 460, "tid": 460'
    call = f'{thread},\n    "ts": {begin - 900:.3f}, "dur": 6.1'
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    work = f'"cat": "kernel", "name": "{name}", "pid": 0, "tid": 20,\n    "ts": {begin:.3f}, "dur": 5000.123'
    ids = f'"device": 0, "context": 1, "stream": 20, "correlation": {correlation}'
    return "".join(
        f',\n  {{\n    "ph": "X", {fields},\n    "args": {{\n      {args}\n    }}\n  }}'
        for fields, args in ((call, f'"cbid": 211, "correlation": {correlation}'), (work, ids))
    )


if __name__ == "__main__":
    main()
