"""Real machines, recorded: what is told of them, and what is not."""

from datetime import date
from pathlib import Path

import pytest

from gpudoctor.commands.judging import Terms, judge
from gpudoctor.findings import Severity
from gpudoctor.policy import Policy
from gpudoctor.reports import terminal
from gpudoctor.reports.document import Document
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.snapshot import Snapshot

RECORDED = Path(__file__).parent / "recorded"


def _document(name: str) -> Document:
    machine = Snapshot.from_json((RECORDED / name / "snapshot.json").read_bytes())
    return judge(machine, Terms(MACHINE_RULES, Policy(), Severity.ERROR), date(2026, 12, 1))


@pytest.fixture
def h200() -> Document:
    return _document("h200-x1")


def test_the_h200_is_healthy_apart_from_what_is_really_there(h200: Document) -> None:
    assert h200.verdict == "ok"
    assert {(finding.code, finding.severity) for finding in h200.findings} == {
        ("PRE001", Severity.INFO),  # float32 matmul precision is torch's default
        ("NET001", Severity.INFO),  # its host name resolves to loopback
    }


def test_everything_of_the_h200_was_read(h200: Document) -> None:
    assert h200.not_read == ()


def test_the_h200_s_memory_is_told_without_what_the_driver_keeps(h200: Document) -> None:
    """NVML's first memory call says that 645 MB of an idle board are in use."""
    assert h200.snapshot.gpus is not None
    (board,) = h200.snapshot.gpus.boards
    assert (board.memory_used_bytes, board.memory_reserved_bytes) == (0, 644939776)


def test_the_h200_s_libraries_are_the_wheel_s_not_the_system_s(h200: Document) -> None:
    """cuDNN 9.14.0 and NCCL 2.28.3 lie in the system beside the wheel's 9.19.0 and 2.28.9."""
    assert h200.snapshot.torch_runtime is not None
    loaded = {library.name: library.loaded for library in h200.snapshot.torch_runtime.libraries or ()}
    assert (loaded["cudnn"], loaded["nccl"]) == ("9.19.0", "2.28.9")


def test_a_healthy_machine_takes_no_more_than_twelve_lines(h200: Document) -> None:
    text = terminal.render(h200, width=80)
    assert len(text.splitlines()) <= 12
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_recorded_names_anybody() -> None:
    for path in RECORDED.glob("*/snapshot.json"):
        assert Snapshot.from_json(path.read_bytes()).host is not None
        assert b'"name":"host1"' in path.read_bytes()
