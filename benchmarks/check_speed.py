"""Speed of `gpudoctor check` against torch's collect_env, and against a bare `import torch` with a CUDA context.

    python benchmarks/check_speed.py [--rounds 5] [--python PATH]

The commands take turns, so that a busy machine slows all of them alike; medians are compared. Exit code 1 where a
limit of docs/benchmarks.md is missed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import time

IMPORT = "import torch; torch.cuda.is_available() and torch.zeros(1, device='cuda').item()"


def seconds(command: list[str]) -> float:
    """Wall time of one run; its output goes nowhere, its exit code does not matter."""
    start = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> int:
    """Print one line a figure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    arguments = options.parse_args()
    doctor = [sys.executable, "-m", "gpudoctor"]
    commands = {
        "help": [*doctor, "--help"],
        "quick": [*doctor, "check", "--quick", "--python", arguments.python],
        "check": [*doctor, "check", "--python", arguments.python],
        "collect_env": [arguments.python, "-m", "torch.utils.collect_env"],
        "import": [arguments.python, "-c", IMPORT],
    }
    for command in commands.values():  # the file cache and the byte code are warm for all of them
        seconds(command)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            times[name].append(seconds(command))
    median = {name: statistics.median(values) for name, values in times.items()}
    machine = platform.processor() or platform.machine()
    print(f"{machine}, Python {platform.python_version()}, {arguments.rounds} rounds")
    for name, values in times.items():
        print(f"{name:<12} {median[name]:7.3f} s   (least {min(values):.3f}, most {max(values):.3f})")
    results = (
        ("gpudoctor --help, seconds", median["help"], "<", 0.25),
        ("collect_env / check --quick", median["collect_env"] / median["quick"], ">=", 10.0),
        ("check / import torch + CUDA context", median["check"] / median["import"], "<=", 1.3),
    )
    missed = False
    for text, value, sign, limit in results:
        held = {"<": value < limit, ">=": value >= limit, "<=": value <= limit}[sign]
        missed |= not held
        print(f"{text:<38} {value:6.2f}   wanted {sign} {limit:g}   {'ok' if held else 'MISSED'}")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
