"""Import torch in a child of the interpreter under examination, and take down what it tells and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

import msgspec

from gpudoctor.facts.torch import LoadedVersion, TorchRuntime
from gpudoctor.probes.system import NotRead, System
from gpudoctor.probes.torch import metadata, pins

SCRIPT = Path(__file__).with_name("torch_child.py")
MARK = "@gpudoctor "
WATCH_S = 0.5
"""Length of the look, before the deadline, that tells a slow child from a hung one."""
ERRORS_KEPT = 4000
"""Characters of standard error: the loader's message and the stacks stand at its end."""


def read(system: System, deadline_s: float = 40.0) -> TorchRuntime:
    """Whatever the child told before it ended, died or was ended; raises NotRead only where it could not be started."""
    if not system.live:
        raise NotRead("a recorded machine has no torch to import")
    if system.quick:
        raise NotRead("not asked for by --quick")
    executable = which(system.python, path=system.environ.get("PATH", os.defpath))
    if executable is None:
        raise NotRead(f"{system.python} not found")
    ending = _run(system, executable, min(deadline_s, system.timeout_s * 0.8))
    facts, unread = _facts(ending.output)
    if facts.get("stage") is None:
        raise NotRead(_last_line(ending.errors) or f"{executable} did not run the script")
    return TorchRuntime(**{**facts, **_how_it_ended(facts, ending)}, unread=unread)


class _Ending(msgspec.Struct, frozen=True):
    output: str
    errors: str
    return_code: int | None
    """None where it was ended at the deadline."""
    busy: bool | None


def _run(system: System, executable: str, deadline_s: float) -> _Ending:
    watch_s = min(WATCH_S, deadline_s / 4)
    # Before that look it writes the stacks of its threads to standard error: they name the place of a hang.
    stacks_s = deadline_s - 2 * watch_s
    child = subprocess.Popen(
        [executable, "-c", SCRIPT.read_text(encoding="utf-8"), str(stacks_s)],
        env=dict(system.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=deadline_s - watch_s)
        return _Ending(_text(output), _text(errors), child.returncode, None)
    except subprocess.TimeoutExpired:
        before = _work_done(child.pid)
    try:
        output, errors = child.communicate(timeout=watch_s)
        return _Ending(_text(output), _text(errors), child.returncode, None)
    except subprocess.TimeoutExpired:
        after = _work_done(child.pid)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        output, errors = child.communicate(timeout=1.0)
    except subprocess.TimeoutExpired as left:  # blocked in the kernel: it cannot even be killed
        output, errors = left.output or b"", left.stderr or b""
    return _Ending(_text(output), _text(errors), None, _worked(before, after))


def _work_done(pid: int) -> tuple[int, int] | None:
    """CPU time in ticks, and pages it had to wait for from disk; None where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12]), int(fields[9])  # utime, stime and majflt of proc(5)


def _worked(before: tuple[int, int] | None, after: tuple[int, int] | None) -> bool | None:
    if before is None or after is None:
        return None
    # A tick or two fall to the interpreter's own housekeeping.
    return after[0] - before[0] > 2 or after[1] > before[1]


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _facts(output: str) -> tuple[dict[str, Any], dict[str, str]]:
    """All lines together, later ones winning. A torch that answers with odd types costs those fields alone."""
    types = {field.name: field.type for field in msgspec.structs.fields(TorchRuntime)}
    facts: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for line in output.splitlines():
        if not line.startswith(MARK):
            continue
        try:
            told = json.loads(line[len(MARK) :])
        except ValueError:
            continue
        unread.update(told.pop("unread", {}))
        for name, value in told.items():
            try:
                facts[name] = msgspec.convert(value, type=types[name])
            except (KeyError, msgspec.ValidationError) as error:
                unread[name] = str(error)
    if facts.get("libraries"):
        facts["libraries"] = _with_pins(facts["libraries"], facts.get("path"))
    return facts, unread


def _with_pins(libraries: tuple[LoadedVersion, ...], path: str | None) -> tuple[LoadedVersion, ...]:
    """What torch does not say it was compiled with, from what its wheel requires."""
    if path is None:
        return libraries
    wanted = pins(metadata([Path(path).parent.parent]))
    return tuple(
        msgspec.structs.replace(
            library, compiled=".".join(wanted[library.name].split(".")[: library.loaded.count(".") + 1])
        )
        if library.compiled is None and library.loaded is not None and library.name in wanted
        else library
        for library in libraries
    )


def _how_it_ended(facts: dict[str, Any], ending: _Ending) -> dict[str, Any]:
    if facts["stage"] == "done" or "error" in facts:
        return {}
    kept = ending.errors[-ERRORS_KEPT:].strip() or None
    if ending.return_code is None:
        return {"timed_out": True, "busy": ending.busy, "traceback": kept}
    if ending.return_code < 0:
        return {"signal": -ending.return_code, "error": _last_words(ending.errors), "traceback": kept}
    words = _last_words(ending.errors) or f"the process ended with exit code {ending.return_code}"
    return {"error": words, "traceback": kept}


def _last_words(errors: str) -> str | None:
    """The line before the stacks that faulthandler adds: the loader's, or the library's that gave up."""
    words = errors.partition("Fatal Python error")[0]
    return _last_line(words)


def _last_line(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None
