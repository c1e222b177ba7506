"""`gpudoctor profile` and `gpudoctor analyze`: where a job's step time goes, and why."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

from gpudoctor import __version__, gate
from gpudoctor.collect import collect
from gpudoctor.commands import judging
from gpudoctor.commands.interpreter import choose
from gpudoctor.commands.judging import Terms
from gpudoctor.commands.options import AnalyzeOptions, JudgeOptions, ProfileOptions
from gpudoctor.commands.output import check_writable, say, write, write_file
from gpudoctor.commands.progress import JobProgress
from gpudoctor.errors import OutputError, UsageError
from gpudoctor.findings import diagnose
from gpudoctor.probes.system import System
from gpudoctor.profiling import folder, merge
from gpudoctor.profiling.blocks import TraceError
from gpudoctor.profiling.job import analyze as read_traces
from gpudoctor.profiling.launch import LaunchError, Plan, command_line
from gpudoctor.profiling.profile import profile
from gpudoctor.readers import error_text
from gpudoctor.reports.document import Document, NotRead, Tool
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.rules.every import RUN_RULES
from gpudoctor.run import Run

BUILT_IN = Path(__file__).resolve().parent.parent / "probes" / "ddp_transformer.py"
CPU_RANKS = 2


def run(options: ProfileOptions) -> int:
    """The exit code. Raises UsageError before any work, OutputError after it."""
    terms = judging.terms(options)
    python = choose(options.python, os.environ)
    check_writable(options.output.file)
    machine = collect(System(python=python, quick=True), expected=terms.policy.expect.facts())
    try:
        words, processes = options.words, options.processes
        if not words:
            words, processes = (str(BUILT_IN),), processes or machine.gpu_count() or CPU_RANKS
        command = command_line(python, words, processes=processes)
        run_folder = folder.make(options.out)
    except (LaunchError, folder.FolderError) as error:
        raise UsageError(str(error)) from error
    plan = Plan(
        command=command,
        folder=run_folder,
        wait=options.wait,
        steps=options.steps,
        run_to_end=options.run_to_end,
        stall_timeout_s=options.stall_timeout_s,
    )
    with JobProgress() as progress:
        try:
            measured = profile(plan, os.environ, machine, tell=progress.steps, analysing=progress.analysing)
        except LaunchError as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise OutputError(f"cannot write to {run_folder}: {error.strerror}") from error
    document = judge(measured, terms, "profile", date.today())
    _keep(document, run_folder, options)
    write(options.output, judging.rendered(document, options))
    say(f"all that was seen is in {run_folder}: report.html, trace.json.gz for Perfetto, run.json")
    return judging.exit_code(document, terms)


def analyze(options: AnalyzeOptions) -> int:
    """The exit code. Raises UsageError where there is no trace to be read, OutputError after it."""
    terms = judging.terms(options)
    check_writable(options.output.file)
    with JobProgress() as progress:
        progress.analysing()
        try:
            measured = read_traces(options.paths)
        except TraceError as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error
    document = judge(measured, terms, "analyze", date.today())
    write(options.output, judging.rendered(document, options))
    return judging.exit_code(document, terms)


def judge(measured: Run, terms: Terms, command: str, today: date) -> Document:
    """The job by the rules on jobs; what its error text says by the rules on error texts."""
    diagnosis = diagnose(measured, RUN_RULES)
    said = error_text.read(measured.error_text) if measured.error_text else None
    texts = diagnose(said, MACHINE_RULES).findings if said is not None else ()
    found = sorted((*texts, *diagnosis.findings), key=lambda finding: finding.severity.rank)
    passed = gate.apply(terms.policy, found, today)
    broken = (f"rule {code} failed, a defect of gpudoctor: {error}" for code, error in diagnosis.broken.items())
    return Document(
        tool=Tool(name="gpudoctor", version=__version__),
        command=command,
        host=measured.machine.host.name if measured.machine.host else None,
        verdict=gate.verdict_of_run(measured, passed.findings, terms.fail_on),
        findings=passed.findings,
        not_read=tuple(_not_read(measured)),
        ignored=passed.ignored,
        notes=(*passed.notes, *broken),
        snapshot=measured.machine,
        run=measured,
    )


def _not_read(measured: Run) -> list[NotRead]:
    """Ranks and traces of which nothing, or not all, is known."""
    told = {**measured.missing, **measured.unread}
    for rank in measured.ranks:
        if rank.damage:
            told[rank.trace or f"rank {rank.rank}"] = rank.damage
        if rank.job is not None and rank.job.agent_error:
            last = rank.job.agent_error.strip().splitlines()[-1]
            told[f"rank {rank.rank}"] = f"the agent switched itself off: {last}"
    return [NotRead(subject=subject, reason=reason) for subject, reason in told.items()]


def _keep(document: Document, run_folder: Path, options: JudgeOptions) -> None:
    """Beside run.json: the report for a browser, and one trace of all ranks."""
    from gpudoctor.reports import html

    shared = judging.shareable(document, document.snapshot) if options.redact else document
    write_file(run_folder / "report.html", html.render(shared).encode())
    measured = document.run
    traces = [(rank, run_folder / rank.trace) for rank in measured.ranks if rank.trace] if measured is not None else []
    if traces:
        try:
            merge.merge(traces, run_folder / "trace.json.gz")
        except (OSError, TraceError) as error:
            say(f"no merged trace: {error}")
