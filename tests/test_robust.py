"""Odd surroundings: never a traceback, never a hang, never a thing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

GPUDOCTOR = [sys.executable, "-m", "gpudoctor"]
QUICK = [*GPUDOCTOR, "check", "--quick", "--fail-on", "never"]


def _shell(
    line: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """What a user typed; `gpudoctor` and `quick` are the commands above."""
    commands = f"""
        gpudoctor() {{ '{sys.executable}' -m gpudoctor "$@"; }}
        quick() {{ gpudoctor check --quick --fail-on never "$@"; }}
    """
    return subprocess.run(
        ["bash", "-c", commands + line],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        timeout=60,
    )


def _calm(ended: subprocess.CompletedProcess[bytes]) -> bool:
    return b"Traceback" not in ended.stderr + ended.stdout and b"internal error" not in ended.stderr


SURROUNDINGS = {
    "no environment": "env -i '{python}' -m gpudoctor check --quick --fail-on never",
    "no home": "unset HOME USER LOGNAME; quick",
    "a home that is not there": "HOME=/no/such/home quick",
    "a home that is a file": "HOME=/dev/null quick",
    "an ASCII terminal": "LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 quick",
    "an encoding that is not UTF-8": "PYTHONIOENCODING=latin-1 quick",
    "a variable that is not UTF-8": "NCCL_DEBUG_FILE=$(printf '/\\351') TORCH_HOME=$(printf '\\377') quick",
    "closed standard input": "quick <&-",
    "closed standard output": "quick >&-",
    "closed standard error": "quick 2>&-",
    "all closed": "quick <&- >&- 2>&-",
    "a narrow terminal": "COLUMNS=20 quick",
    "no width at all": "COLUMNS=0 quick",
    "a width that is no number": "COLUMNS=wide quick",
    "a dumb terminal": "TERM=dumb quick",
    "no programs": "PATH=/no/such/folder '{python}' -m gpudoctor check --quick --fail-on never",
    "few open files": "ulimit -n 64; quick",
    "a modules folder of the user's": "PYTHONPATH=$PWD quick",
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_odd_surroundings_cost_no_more_than_a_subject(name: str, tmp_path: Path) -> None:
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes/__init__.py").write_text("raise SystemExit('not ours')")
    ended = _shell(SURROUNDINGS[name].replace("{python}", sys.executable), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert _calm(ended), ended.stderr
    if "output" not in name and "all" not in name:
        assert len(ended.stdout.splitlines()) >= 3


@pytest.mark.parametrize("streams", ["", "<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_cost_no_subject(streams: str) -> None:
    told = json.loads(_shell(f"quick --format json {streams}").stdout)
    wanted = json.loads(_shell("quick --format json").stdout)
    assert [item["subject"] for item in told["not_read"]] == [item["subject"] for item in wanted["not_read"]]


@pytest.mark.parametrize("where", ["read-only", "deleted", "not UTF-8"])
def test_odd_working_folders_cost_no_subject(where: str, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + (b"/\xe9" if where == "not UTF-8" else b"/here")))
    folder.mkdir()
    before = {"read-only": "chmod a-w . ; ", "deleted": 'rmdir "$PWD"; ', "not UTF-8": ""}[where]
    ended = _shell(f"{before}quick --format json", cwd=folder)
    assert _calm(ended), ended.stderr
    lost = [
        item for item in json.loads(ended.stdout)["not_read"] if "Unicode" in item["reason"] or "cwd" in item["reason"]
    ]
    assert lost == []


@pytest.mark.parametrize("command", ["quick", "quick --format json", "gpudoctor rules", "gpudoctor --help"])
def test_a_reader_that_leaves_is_no_fault(command: str) -> None:
    ended = _shell(f"{command} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(ended.stdout.splitlines()) == 1
    ended = _shell(f"{command} | true; exit ${{PIPESTATUS[0]}}")
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    "command", ["quick", "quick --format json", "gpudoctor rules", "gpudoctor --help", "gpudoctor --version"]
)
def test_a_full_disk_is_told_in_one_line(command: str) -> None:
    ended = _shell(f"{command} >/dev/full")
    assert ended.returncode == 3
    assert ended.stderr == b"gpudoctor: cannot write to standard output: No space left on device\n"


def test_a_pipe_has_no_escape_codes_even_where_colours_are_forced() -> None:
    ended = _shell("quick", environ={"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"})
    assert b"\x1b" not in ended.stdout + ended.stderr


def test_a_terminal_has_colours_and_none_where_refused() -> None:
    assert b"\x1b[" in _at_a_terminal({})
    for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not re.search(rb"\x1b\[[\d;]+m", _at_a_terminal(refused))
    assert not re.search(rb"\x1b\[[\d;]+m", _at_a_terminal({}, "--no-color"))


def _at_a_terminal(environ: Mapping[str, str], *arguments: str) -> bytes:
    import pty

    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [*QUICK, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm", **environ},
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            output += chunk
    except OSError:  # How Linux says that nobody holds the other end any more.
        pass
    os.close(ours)
    assert process.wait(20) == 0
    return output


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """Stands in for an interpreter and for nvidia-smi: tells its process id and never ends, nor does its child."""
    program = tmp_path / "bin/python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\necho $$ >>'{tmp_path}/pids'\nsleep 300 &\necho $! >>'{tmp_path}/pids'\nwait\n")
    program.chmod(0o755)
    (tmp_path / "bin/nvidia-smi").symlink_to(program)
    return program


def test_a_hanging_interpreter_costs_its_own_time_and_is_ended(hanging: Path, tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = _shell(f"gpudoctor check --python '{hanging}' --timeout 2 --format json --fail-on never")
    assert time.monotonic() - begin < 8
    assert _calm(ended), ended.stderr
    told = json.loads(ended.stdout)
    assert told["snapshot"]["shm"] is not None
    assert _alive(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_all_at_once_and_says_so(number: int, code: int, hanging: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*GPUDOCTOR, "check", "--python", str(hanging), "--output", str(tmp_path / "report")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": f"{hanging.parent}:{os.environ['PATH']}"},
    )
    while not (tmp_path / "pids").exists():
        time.sleep(0.01)
    process.send_signal(number)
    output, errors = process.communicate(timeout=10)
    assert process.returncode == code
    assert output == b""
    assert errors == (b"gpudoctor: interrupted\n" if number == signal.SIGINT else b"")
    assert _alive(tmp_path) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bin", "pids"]


def _alive(folder: Path) -> list[int]:
    """Those of the started processes that are still there after a second's grace."""
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    for _ in range(100):
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists() and _state(pid) != "Z"]
        if not left:
            return []
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


CHECKS = int(os.environ.get("CHECKS", "40"))
"""Of the test below; the figure is for two slow cores."""


@pytest.mark.slow
def test_a_hundred_checks_at_once_write_whole_reports_and_leave_nothing(tmp_path: Path) -> None:
    def start(number: int) -> subprocess.Popen[bytes]:
        # All into two files: the last to end wins, whole.
        file = tmp_path / f"report{number % 2}.json"
        return subprocess.Popen(
            [*QUICK, "--only", "SHM", "--format", "json", "--output", str(file)], stderr=subprocess.PIPE
        )

    running: list[subprocess.Popen[bytes]] = []
    ended: list[tuple[int, bytes]] = []
    for number in range(CHECKS):
        running.append(start(number))
        while len(running) >= 25 or (number == CHECKS - 1 and running):
            process = running.pop(0)
            errors = process.communicate(timeout=120)[1]
            ended.append((process.returncode, errors))
    assert set(ended) == {(0, b"")}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report0.json", "report1.json"]
    for file in tmp_path.iterdir():
        told: dict[str, Any] = json.loads(file.read_text())
        assert told["snapshot"]["shm"] is not None
