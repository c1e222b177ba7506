"""`check --from`: what users and scripts rely on."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpudoctor import cli
from gpudoctor.commands import from_text
from gpudoctor.readers import frame
from gpudoctor.snapshot import Snapshot

Run = Callable[..., tuple[int, str, str]]

SMALL_SHM = "shm              64M   60M  4.1M  94% /dev/shm\n"
REPORT = (
    "PyTorch version: 2.8.0+cu128\nCUDA used to build PyTorch: 12.8\nIs CUDA available: True\n[pip3] torch==2.8.0\n"
)
PROCESSES = """\
|    0   N/A  N/A   2695172      C   python                          26167MiB |
|    0   N/A  N/A   2695173      C   python                            871MiB |
|    1   N/A  N/A   2695173      C   python                          25297MiB |
"""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process: texts become files; exit code, output, errors."""

    def collect(*_: object, **__: object) -> None:
        raise AssertionError("a probe ran")

    monkeypatch.setattr("gpudoctor.collect.collect", collect)

    def run_with(*texts: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        files = [tmp_path / f"{number}.txt" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        return cli.run(["check", "--from", *map(str, files), *options]), *capfd.readouterr()

    return run_with


def test_a_paste_is_judged_by_the_same_rules(run: Run) -> None:
    code, output, errors = run(SMALL_SHM)
    assert code == 1
    assert "SHM001 shm-too-small" in output
    assert "recognised: limits and shared memory" in output
    assert "to see more, add:" in output
    assert errors == ""


def test_several_files_make_one_case(run: Run) -> None:
    _, output, _ = run(REPORT, SMALL_SHM, options=("--format", "json"))
    machine = json.loads(output)["snapshot"]
    assert machine["torch"]["version"] == "2.8.0+cu128"
    assert machine["shm"]["total_bytes"] == 64 * 2**20


def test_a_dash_is_standard_input(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SMALL_SHM.encode())))
    assert cli.run(["check", "--from", "-"]) == 1
    assert "SHM001" in capfd.readouterr().out


def test_a_healthy_paste_gives_zero(run: Run) -> None:
    code, output, _ = run(REPORT)
    assert code == 0
    assert output.splitlines()[0].endswith("ok")


def test_nothing_recognised_gives_three_and_one_line(run: Run) -> None:
    code, output, errors = run("hello\n")
    assert (code, output) == (3, "")
    assert errors.count("\n") == 1
    assert "nothing recognised" in errors
    assert "torch.utils.collect_env" in errors


def test_nothing_recognised_is_one_document_in_json(run: Run) -> None:
    code, output, _ = run("", options=("--format", "json"))
    assert code == 3
    assert json.loads(output)["verdict"] == "not-checked"


@pytest.mark.parametrize(
    "options",
    [("--quick",), ("--python", "python"), ("--checkpoint-dir", "."), ("--timeout", "5")],
    ids=lambda words: words[0],
)
def test_options_on_this_machine_are_refused(options: tuple[str, ...], run: Run) -> None:
    code, output, errors = run(SMALL_SHM, options=options)
    assert (code, output) == (2, "")
    assert f"{options[0]}: not with --from" in errors


def test_a_file_that_cannot_be_read_is_wrong_usage(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run(["check", "--from", str(tmp_path / "gone.txt")]) == 2
    assert cli.run(["check", "--from", str(tmp_path)]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 2


def test_only_and_policy_and_fail_on_hold_for_pastes(run: Run, tmp_path: Path) -> None:
    assert run(SMALL_SHM, options=("--only", "TOR"))[0] == 0
    assert run(SMALL_SHM, options=("--fail-on", "never"))[0] == 0
    policy = tmp_path / "gpudoctor.toml"
    policy.write_text('[[ignore]]\ncode = "SHM001"\nreason = "one process"\n', encoding="utf-8")
    code, output, _ = run(SMALL_SHM, options=("--policy", str(policy)))
    assert code == 0
    assert "ignored" in output


def test_who_holds_memory_where_is_judged_too(run: Run) -> None:
    code, output, _ = run(PROCESSES)
    assert code == 0
    assert "MEM002 stray-context (likely)" in output
    assert "MEM002" not in run(PROCESSES, options=("--only", "SHM"))[1]


def test_what_was_read_can_be_saved_and_read_again(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    run(SMALL_SHM, options=("--save", str(file)))
    saved = Snapshot.from_json(file.read_bytes())
    assert saved.shm is not None
    assert saved.shm.total_bytes == 64 * 2**20
    code, output, _ = run(file.read_text(encoding="utf-8"))
    assert code == 1
    assert "recognised: gpudoctor snapshot" in output


def test_a_snapshot_is_judged_as_its_machine(healthy: Snapshot, run: Run) -> None:
    ill = msgspec.structs.replace(healthy, shm=frame.read([SMALL_SHM]).snapshot.shm)
    assert run(healthy.to_json().decode())[0] == 0
    assert run(ill.to_json().decode())[0] == 1


def test_an_answer_for_an_issue_has_at_most_twenty_lines(run: Run) -> None:
    _, output, _ = run(SMALL_SHM + PROCESSES + REPORT, options=("--format", "github"))
    assert len(output.splitlines()) <= 20
    assert "**SHM001 shm-too-small**" in output


def test_of_a_very_long_text_the_ends_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MOST_BYTES", 2000)
    code, output, errors = run(SMALL_SHM + "filler\n" * 10_000 + REPORT)
    assert code == 1
    assert "collect_env" in output
    assert "left out" in errors


def test_no_probe_is_imported() -> None:
    import subprocess

    program = (
        "import sys\nfrom gpudoctor.commands import from_text\n"
        "print(sorted(name for name in sys.modules if name.startswith('gpudoctor.probes') or name == 'torch'))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"
    assert from_text.CAN_BE_READ
