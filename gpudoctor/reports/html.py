"""The report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpudoctor.facts.run import Arrival, Gap, Pace, Rank
from gpudoctor.facts.topology import GpuPair
from gpudoctor.reports import figures
from gpudoctor.reports.charts import boards, ticks, timeline
from gpudoctor.reports.document import Document
from gpudoctor.reports.grouping import grouped
from gpudoctor.reports.job import ending, setup
from gpudoctor.reports.plain import plain_lines
from gpudoctor.reports.steps import NAMES, cost, outstanding, pace, parts
from gpudoctor.reports.summary import count_by_severity, header, lines, short_gpu_name
from gpudoctor.rules.sizes import size
from gpudoctor.run import Run

TEMPLATE = "report.html"
SHOWN = 16
"""Ranks and boards in a chart or a table; beyond them only the outstanding ranks, and the first boards."""


def render(document: Document) -> str:
    """Escaped throughout: words of the machine and of the job mean nothing but themselves."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    environment.filters |= {
        "ms": figures.milliseconds,
        "percent": figures.percent,
        "seconds": figures.seconds,
        "size": size,
        "rate": figures.rate,
        "short": short_gpu_name,
    }
    run = document.run
    return environment.get_template(TEMPLATE).render(
        document=document,
        run=run,
        header=header(document),
        counts=count_by_severity(document.findings),
        worst=document.findings[0].severity.value if document.findings else "",
        groups=[(group, cost(group)) for group in grouped(document.findings)],
        shown=SHOWN,
        areas=list(lines(document)),
        boards=document.snapshot.gpus.boards if document.snapshot.gpus else (),
        matrix=_matrix(document.snapshot.topology.pairs or ()) if document.snapshot.topology else {},
        meanings=NAMES,
        **(_of_run(run) if run is not None else {}),
    )


def _of_run(run: Run) -> dict[str, Any]:
    ranks = [rank for rank in run.ranks if rank.shares is not None]
    shown = [(rank, "") for rank in ranks] if len(ranks) <= SHOWN else list(outstanding(run))
    watched = tuple(boards(run.watch)) if run.watch else ()
    seconds = run.watch.at_s[-1] - run.watch.at_s[0] if run.watch and run.watch.at_s else 0.0
    return {
        "ending": ending(run),
        "pace": pace(run),
        "mean": parts(run.shares, run.step_ms) if run.shares else (),
        "bars": [(rank, why, parts(rank.shares, rank.step_ms)) for rank, why in shown if rank.shares],
        "unshown": len(ranks) - len(shown),
        "timeline": timeline([rank for rank, _ in shown]),
        "longest": _longest_gaps(run),
        "watched": watched[:SHOWN],
        "unwatched": len(watched) - len(watched[:SHOWN]),
        "watch_ticks": list(ticks(seconds, "s")),
        "ranks": _by_rank(run),
        "setup": _setup(run),
    }


def _clean(value: Any) -> Any:
    return plain_lines(value) if type(value) is str else value


def _matrix(pairs: Iterable[GpuPair]) -> Mapping[int, Mapping[int, GpuPair]]:
    """Each pair from both its ends."""
    rows: dict[int, dict[int, GpuPair]] = {}
    for pair in pairs:
        rows.setdefault(pair.first, {})[pair.second] = pair
        rows.setdefault(pair.second, {})[pair.first] = pair
    return dict(sorted(rows.items()))


def _longest_gaps(run: Run) -> list[tuple[int, Gap]]:
    """The longest of the window, over all ranks."""
    every = [(rank.rank, gap) for rank in run.ranks for gap in rank.gaps]
    return sorted(every, key=lambda item: -item[1].duration_ns)[:5]


def _by_rank(run: Run) -> list[tuple[Rank, Arrival | None, Pace | None]]:
    """Each rank with its arrival and its pace; of many the costliest."""
    arrivals = {arrival.rank: arrival for arrival in run.arrivals}
    paces = {pace.rank: pace for pace in run.paces}
    every = [(rank, arrivals.get(rank.rank), paces.get(rank.rank)) for rank in run.ranks]
    if len(every) > SHOWN:
        every.sort(key=lambda row: -max(row[1].caused_ms if row[1] else 0.0, row[2].excess_ms if row[2] else 0.0))
    return every[:SHOWN]


def _setup(run: Run) -> tuple[int, list[tuple[str, str]]]:
    """Of the first rank that tells, which speaks for the others: ranks are set up alike."""
    return next(((rank.rank, list(setup(rank.job))) for rank in run.ranks if rank.job is not None), (0, []))
