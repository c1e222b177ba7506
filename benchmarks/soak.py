"""What gpudoctor leaves behind: after many checks in a row, and beside a job that it watches for long.

    python benchmarks/soak.py [--checks 1000] [--minutes 20]

Checks: files in the temporary folder, the working folder, the home and /dev/shm, and processes, before and after. Job:
`profile --run-to-end` of a small loader job with short epochs; memory of the job's process and the size of the run
folder a quarter through and at the end. Exit code 1 where something is left or grows. Linux.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

JOB = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

ends_at = time.monotonic() + float(sys.argv[1])
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while time.monotonic() < ends_at:
    for x, y in DataLoader(data, batch_size=8, num_workers=1):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)  # so that a long run does not cost a machine's whole time
"""
MOST_GROWTH = 1.05
"""Of the job's memory after its first quarter: malloc's own noise is below this."""
ONE_READING_S = 5.0


def main() -> int:
    """Print one line a part."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--checks", type=int, default=1000)
    options.add_argument("--minutes", type=float, default=20.0)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        left = _checks(arguments.checks, Path(folder)) if arguments.checks else False
        grows = _job(arguments.minutes * 60, Path(folder)) if arguments.minutes else False
    return int(left or grows)


def _checks(count: int, folder: Path) -> bool:
    own = {name: folder / name for name in ("tmp", "home", "work")}
    for path in own.values():
        path.mkdir()
    environment = {**os.environ, "TMPDIR": str(own["tmp"]), "HOME": str(own["home"])}
    before = _files([*own.values(), Path("/dev/shm")]), _processes()
    start = time.monotonic()
    codes = set()
    for _ in range(count):
        command = [sys.executable, "-m", "gpudoctor", "check", "--quick", "--fail-on", "never"]
        done = subprocess.run(command, cwd=own["work"], env=environment, capture_output=True, check=False)
        codes.add(done.returncode)
    took_s = time.monotonic() - start
    files, processes = _files([*own.values(), Path("/dev/shm")]) - before[0], _processes() - before[1]
    print(
        f"{count} checks in {took_s:.0f} s, exit codes {sorted(codes)}; "
        f"left: {len(files)} files, {len(processes)} processes"
    )
    for name in sorted(files | processes):
        print(f"  {name}")
    return bool(files or processes or codes != {0})


def _files(folders: list[Path]) -> set[str]:
    return {str(path) for folder in folders for path in folder.rglob("*")}


def _processes() -> set[str]:
    """Those of gpudoctor: others come and go."""
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if "gpudoctor" in " ".join(words[:4]) and process.info["pid"] != os.getpid():
            found.add(f"{process.info['pid']} {' '.join(words)[:80]}")
    return found


def _job(seconds: float, folder: Path) -> bool:
    script, run = folder / "job.py", folder / "run"
    script.write_text(JOB)
    command = [sys.executable, "-m", "gpudoctor", "profile", "--run-to-end", "--out", str(run), "--fail-on", "never"]
    doctor = subprocess.Popen(
        [*command, str(script), str(seconds)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    readings: list[tuple[float, float, int]] = []
    start = time.monotonic()
    while doctor.poll() is None:
        time.sleep(ONE_READING_S)
        trained = [child for child in _below(doctor.pid) if str(script) in child[1]]
        if trained:
            size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
            readings.append((time.monotonic() - start, max(child[0] for child in trained), size))
    steady = [reading for reading in readings if reading[0] > seconds / 4][: -max(1, len(readings) // 50)]
    if len(steady) < 4:
        print(f"the job was read only {len(readings)} times: exit code {doctor.returncode}")
        return True
    half = len(steady) // 2
    first, last = (statistics.median(reading[1] for reading in part) for part in (steady[:half], steady[half:]))
    sizes = steady[0][2], steady[-1][2]
    print(
        f"a job of {seconds / 60:.0f} minutes, exit code {doctor.returncode}: memory {first / 2**20:.0f} -> "
        f"{last / 2**20:.0f} MiB, run folder {sizes[0] / 1e3:.0f} -> {sizes[1] / 1e3:.0f} kB"
    )
    return doctor.returncode != 0 or last > first * MOST_GROWTH or sizes[1] > sizes[0]


def _below(pid: int) -> list[tuple[float, str]]:
    """Resident bytes and command line of the processes below; loader workers bear their parent's command line."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for child in below:
        try:
            found.append((float(child.memory_info().rss), " ".join(child.cmdline())))
        except psutil.Error:
            continue
    return found


if __name__ == "__main__":
    raise SystemExit(main())
