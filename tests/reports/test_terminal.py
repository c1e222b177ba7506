"""The report for people."""

import re

import msgspec
import pytest

from gpudoctor.reports.document import Document
from gpudoctor.reports.terminal import render
from tests.reports.golden import assert_golden
from tests.reports.runs import failed


def test_a_healthy_machine_takes_twelve_lines_at_most(well: Document) -> None:
    text = render(well)
    assert len(text.splitlines()) <= 12
    assert max(map(len, text.splitlines())) <= 80
    assert_golden("terminal-well.txt", text)


def test_a_machine_with_findings_reads_as_in_the_golden_file(ill: Document) -> None:
    assert_golden("terminal-ill.txt", render(ill))


def test_a_laptop_is_no_wall_of_text(laptop: Document) -> None:
    text = render(laptop)
    assert len(text.splitlines()) <= 6
    assert "gpus, topology, torch_runtime: no NVIDIA driver" in text


def test_the_verdict_stands_first_and_last(well: Document, ill: Document) -> None:
    dark = msgspec.structs.replace(well, verdict="not-checked")
    for document, verdict in (
        (well, "✔ ok"),
        (ill, "✖ findings: 1 error, 4 warnings, 1 info"),
        (dark, "✖ not checked"),
    ):
        lines = render(document).splitlines()
        assert lines[0] == lines[-1] == verdict


@pytest.mark.parametrize("width", [1, 20, 39, 40, 80, 120, 200])
def test_lines_fit_the_width_but_for_commands(width: int, ill: Document, hostile: Document) -> None:
    for document in (ill, hostile):
        for line in render(document, width=width).splitlines():
            assert len(line) <= max(20, min(width, 120)) or "docker run" in line


def test_a_command_is_never_broken(ill: Document) -> None:
    assert "docker run --shm-size=16g --rm -it image" in [line.strip() for line in render(ill, width=20).splitlines()]


def test_one_fault_on_several_boards_is_told_once(ill: Document) -> None:
    text = render(ill)
    assert text.count("narrow-pcie-link") == 1
    assert "PCI001 narrow-pcie-link (likely) · GPU 0, 1, 3, 5" in text
    assert "GPU 0, 1, 3: PCIe lanes: x8" in text
    assert "GPU 5: PCIe lanes: x4" in text


def test_there_are_colours_only_where_asked(ill: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert "\x1b" not in render(ill)
    coloured = render(ill, colour=True)
    assert "\x1b[1;31m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(ill)


def test_ascii_is_ascii_and_says_the_same(ill: Document, hostile: Document) -> None:
    for document in (ill, hostile):
        render(document, ascii_only=True).encode("ascii")
    assert "x ERROR SHM001" in render(ill, ascii_only=True)
    assert "8 x H100" in render(ill, ascii_only=True)


def test_words_of_the_machine_give_no_orders(hostile: Document) -> None:
    for text in (render(hostile), render(hostile, colour=True)):
        assert "\x1b[2J" not in text
        assert "\r" not in text
        assert "\u202e" not in text
        assert "[red]x[/red]" in text
        text.encode("utf-8")


def test_an_area_with_findings_has_no_healthy_line(well: Document, ill: Document) -> None:
    assert "/dev/shm 1e+03 GiB" not in render(well)
    assert "/dev/shm 1000 GiB" in render(well)
    assert "/dev/shm 1000 GiB" not in render(ill)
    assert "PCIe x16" not in render(ill)


def test_a_job_reads_as_in_the_golden_file(job: Document) -> None:
    assert_golden("terminal-job.txt", render(job))
    assert_golden("terminal-job-ascii-60.txt", render(job, width=60, ascii_only=True))


def test_a_hanging_job_reads_as_in_the_golden_file(hanging: Document) -> None:
    assert_golden("terminal-hanging.txt", render(hanging))


@pytest.mark.parametrize("width", [20, 39, 40, 60, 80, 120])
def test_lines_of_a_job_fit_the_width_but_for_commands(width: int, job: Document, hanging: Document) -> None:
    for document in (job, hanging):
        for line in render(document, width=width).splitlines():
            assert len(line) <= width or "num_workers" in line


def test_a_job_in_ascii_and_in_colours_says_the_same(job: Document, hanging: Document) -> None:
    for document in (job, hanging):
        render(document, ascii_only=True).encode("ascii")
        coloured = render(document, colour=True)
        assert "\x1b[32m" in coloured
        assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(document)


def test_the_last_lines_of_a_failed_job_are_quoted(job: Document) -> None:
    assert job.run is not None
    run = failed(job.run)
    run = msgspec.structs.replace(run, error_text="\n".join(f"line {number}" for number in range(100)))
    lines = render(msgspec.structs.replace(job, run=run)).splitlines()
    assert lines[1] == "✖ the job failed: exit code 137 (SIGKILL)"
    assert lines[2:4] == ["  wrote      … 80 lines before", "             line 80"]
    assert "             line 99" in lines


def test_of_a_deep_stack_the_innermost_calls_are_quoted(hanging: Document) -> None:
    assert hanging.run is not None
    stack = "\n".join(f"f{number} (train.py:{number})" for number in range(100))
    text = render(msgspec.structs.replace(hanging, run=msgspec.structs.replace(hanging.run, stacks={"rank 0": stack})))
    assert "f19 (train.py:19)\n             … 80 lines more" in text
    assert "f20 " not in text
