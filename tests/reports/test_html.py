"""The report as a page."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from gpudoctor.facts.topology import GpuPair, Topology
from gpudoctor.redaction import redacted
from gpudoctor.reports.document import Document
from gpudoctor.reports.html import render
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, LATE, failed, run_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta"}


class _Checker(HTMLParser):
    """Tags that close in order, and the sections there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.sections: list[str] = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _checked(text: str) -> _Checker:
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def test_a_job_has_all_its_sections(job: Document) -> None:
    page = _checked(render(job))
    assert page.sections == ["step", "timeline", "gpus", "ranks", "links", "job", "machine", "topology"]


def test_a_check_has_the_same_page_without_a_job(well: Document, ill: Document, laptop: Document) -> None:
    assert _checked(render(well)).sections == ["machine", "topology"]
    assert _checked(render(ill)).sections == ["machine", "topology", "not-read", "ignored", "notes"]
    assert _checked(render(laptop)).sections == ["machine", "not-read"]
    assert "PCI001 narrow-pcie-link" in render(ill)


def test_a_page_needs_nothing_but_itself(job: Document, ill: Document) -> None:
    for document in (job, ill):
        text = render(document)
        page = _checked(text)
        assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base"}
        assert not re.search(r"(src|href|action)=|url\(|@import|@font-face|https?://", text.split("<body>")[0])
        assert not re.search(r"<[^>]*\s(src|href|on\w+)=", text)


def test_a_hang_is_told_before_the_figures(hanging: Document) -> None:
    text = render(hanging)
    assert _checked(text).sections[0] == "ending"
    assert "the job hung: no step for 60 s" in text
    assert text.count("all_reduce (distributed_c10d.py:2501)") == 1


def test_words_of_the_job_and_the_machine_give_no_orders(hostile: Document, job: Document) -> None:
    nasty = "\x1b[2J</pre><script>alert(1)</script>\u202e{{ 7 * 7 }}\x00"
    assert job.run is not None
    rank = msgspec.structs.replace(job.run.ranks[0], host=nasty, device=nasty)
    run = msgspec.structs.replace(failed(job.run), error_text=nasty, command=(nasty,), ranks=(rank, *job.run.ranks[1:]))
    for document in (hostile, msgspec.structs.replace(job, run=run)):
        text = render(document)
        text.encode("utf-8")
        assert "script" not in _checked(text).tags
        assert "<b>é" not in text
        assert not set("\x1b\x00\u202e") & set(text)
    assert "{{ 7 * 7 }}" in text


def test_lines_of_what_the_job_wrote_stay_lines(job: Document) -> None:
    assert job.run is not None
    text = render(msgspec.structs.replace(job, run=failed(job.run)))
    assert "last):\n  File &#34;train.py&#34;, line 71, in main\nboom &lt;b&gt;" in text


def test_sections_without_facts_are_left_out(well: Document) -> None:
    bare = msgspec.structs.replace(well, snapshot=Snapshot(), run=Run(), host=None)
    assert _checked(render(bare)).sections == ["step"]
    assert "no whole step was seen" in render(bare)


def test_refused_peer_access_is_marked(well: Document) -> None:
    pair = GpuPair(first=0, second=1, path="SYS", peer_access=False, peer_status="chipset_not_supported")
    machine = Snapshot(topology=Topology(pairs=(pair,)))
    text = render(msgspec.structs.replace(well, snapshot=machine))
    assert text.count('title="no peer access: chipset_not_supported"') == 2


def test_a_thousand_ranks_make_no_heavy_page(well: Document) -> None:
    run = run_of([ALIKE, LATE] * 500, Snapshot())
    text = render(msgspec.structs.replace(well, run=msgspec.structs.replace(run, watch=None)))
    assert len(text) < 200_000
    assert "992 other ranks are like the mean" in text


def test_a_redacted_page_names_nobody(job: Document) -> None:
    text = render(redacted(job, job.snapshot))
    assert "node1" not in text
    assert "ada" not in re.findall(r"[a-z]+", text)
    assert "/home/user1/train.py:88" in text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_lays_it_out_without_a_complaint(job: Document, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page = tmp_path / "report.html"
    page.write_text(render(job), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    picture = tmp_path / "report.png"
    done = subprocess.run(
        [CHROMIUM, *options, "--enable-logging=stderr", f"--screenshot={picture}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert picture.stat().st_size > 20_000
    assert "CONSOLE" not in done.stderr
