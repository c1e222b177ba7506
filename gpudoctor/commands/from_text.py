"""`gpudoctor check --from`: judge what was pasted. No probe runs, and nothing of this machine is looked at."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpudoctor import gate
from gpudoctor.commands import judging
from gpudoctor.commands.judging import Terms
from gpudoctor.commands.options import CheckOptions, Format
from gpudoctor.commands.output import check_writable, say, write, write_file
from gpudoctor.errors import UsageError
from gpudoctor.findings import Finding, diagnose
from gpudoctor.readers import frame, job, next_output
from gpudoctor.readers.frame import Reading
from gpudoctor.reports.document import Document
from gpudoctor.rules import sharing

CAN_BE_READ = (
    "the output of `python -m torch.utils.collect_env`, nvidia-smi (-q, topo -m, nvlink -s), pip list, env, ulimit -a, "
    "df -h /dev/shm or lspci -vv; a traceback, a log with NCCL_DEBUG=INFO, lines of dmesg, a gpudoctor snapshot"
)
BY_PROCESS = (sharing.stray_context, sharing.data_parallel)
"""Rules on a job that a list of processes is enough for."""


def run(options: CheckOptions) -> int:
    """The exit code. Raises UsageError before any work, OutputError after it."""
    _refuse(options)
    terms = judging.terms(options)
    for file in (options.output.file, options.save):
        check_writable(file)
    reading = frame.read([frame.decode(_bytes(source)) for source in options.sources])
    if not reading.recognised:
        say(f"nothing recognised in {', '.join(options.sources)}; what can be read: {CAN_BE_READ}")
        if options.output.format is Format.TERMINAL:
            return gate.NOT_CHECKED
    machine = reading.snapshot
    if options.policy:
        machine = msgspec.structs.replace(machine, expected=terms.policy.expect.facts())
    document = judge(replace(reading, snapshot=machine), terms, date.today())
    if options.save:
        saved = judging.shareable(machine, machine) if options.redact else machine
        write_file(options.save, saved.to_json() + b"\n")
    write(options.output, judging.rendered(document, options))
    return judging.exit_code(document, terms)


def judge(reading: Reading, terms: Terms, today: date) -> Document:
    """As of a machine that was looked at, with what was recognised and what to ask for next."""
    machine = reading.snapshot
    document = judging.judge(machine, terms, today)
    held = job.run_of(machine)
    if held is not None and terms.asks_all:
        found = [_likely(finding) for finding in diagnose(held, BY_PROCESS).findings]
        passed = gate.apply(terms.policy, found, today)
        findings = sorted((*document.findings, *passed.findings), key=lambda finding: finding.severity.rank)
        document = msgspec.structs.replace(
            document,
            findings=tuple(findings),
            ignored=(*document.ignored, *passed.ignored),
            verdict=gate.verdict(terms.policy, machine, findings, terms.fail_on),
        )
    return msgspec.structs.replace(document, notes=(*document.notes, *_notes(reading)))


def _likely(finding: Finding) -> Finding:
    """Which processes are one job, the list does not say."""
    return msgspec.structs.replace(finding, confidence="likely")


def _notes(reading: Reading) -> list[str]:
    notes = [*reading.notes]
    if reading.recognised:
        notes.insert(0, f"recognised: {', '.join(reading.recognised)}")
    if reading.unknown:
        notes.append(f"not recognised: {'; '.join(reading.unknown)}")
    if asked := next_output.commands(reading.snapshot):
        notes.append(f"to see more, add: {'; '.join(asked)}")
    return notes


def _refuse(options: CheckOptions) -> None:
    given = {
        "--quick": options.quick,
        "--python": options.python is not None,
        "--checkpoint-dir": options.checkpoint_dir is not None,
        "--timeout": options.timeout_s is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise UsageError(f"{', '.join(named)}: not with --from, which looks at texts and at nothing of this machine")


def _bytes(source: str) -> bytes:
    """Of a very long text the beginning and the end. Raises UsageError where it cannot be read."""
    if source == "-":
        return b"" if sys.stdin is None else _ends(sys.stdin.buffer)
    try:
        with Path(source).open("rb") as file:
            return _ends(file)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"--from {source}: {reason}") from error


def _ends(file: BinaryIO) -> bytes:
    """In bounded memory."""
    half = frame.MOST_BYTES // 2
    first = file.read(half)
    last = b""
    left_out = 0
    while chunk := file.read(1 << 20):
        last += chunk
        if len(last) > 2 * half:
            left_out += len(last) - half
            last = last[-half:]
    if len(last) > half:
        left_out += len(last) - half
        last = last[-half:]
    if left_out:
        say(f"{left_out / 1e6:.0f} MB in the middle of a long text are left out")
        return first + b"\n" + last
    return first + last
