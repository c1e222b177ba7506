"""The command line: what users and scripts rely on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor import __version__, cli
from gpudoctor.commands import check, judging
from gpudoctor.commands.options import CheckOptions, FailOn
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.shm import Shm
from gpudoctor.probes.system import System
from gpudoctor.snapshot import Snapshot

Run = Callable[..., tuple[int, str, str]]

MIB = 2**20


@pytest.fixture
def machine(healthy: Snapshot) -> Snapshot:
    """Ill in one way: an error."""
    return msgspec.structs.replace(
        healthy, shm=Shm(exists=True, writable=True, file_system="tmpfs", total_bytes=64 * MIB)
    )


@pytest.fixture
def run(machine: Snapshot, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, on a machine that is given: exit code, output, errors."""

    def run_with(*arguments: str, on: Snapshot = machine) -> tuple[int, str, str]:
        def collect(system: object, *, expected: Expected, **_: object) -> Snapshot:
            return msgspec.structs.replace(on, expected=expected)

        monkeypatch.setattr(check, "collect", collect)
        return cli.run(list(arguments)), *capfd.readouterr()

    return run_with


def test_findings_at_or_above_fail_on_give_one(run: Run, healthy: Snapshot) -> None:
    only = ("check", "--only", "SHM")
    assert run(*only)[0] == 1
    assert run(*only, "--fail-on", "warning")[0] == 1
    assert run(*only, "--fail-on", "never")[0] == 0
    assert run(*only, on=healthy)[0] == 0
    assert run(*only, "--fail-on", "info", on=healthy)[0] == 0


def test_a_machine_of_which_nothing_was_read_gives_three(run: Run) -> None:
    code, output, _ = run("check", "--fail-on", "never", on=Snapshot(unread={"gpus": "no driver"}))
    assert code == 3
    assert output.splitlines()[0] == "✖ not checked"


def test_json_is_one_document_and_nothing_else(run: Run) -> None:
    code, output, errors = run("check", "--format", "json")
    told = json.loads(output)
    assert (code, told["verdict"], told["findings"][0]["code"], errors) == (1, "findings", "SHM001", "")
    assert told["snapshot"]["gpus"]["boards"][0]["uuid"].startswith("GPU-00000000")


def test_options_stand_before_or_after_the_command(run: Run) -> None:
    after = run("check", "--only", "SHM001", "--format", "json")
    assert run("--only", "SHM001", "--format=json", "check") == after
    assert run("--format", "json", "check", "--only", "SHM001") == after
    assert run("explain", "--format", "json", "SHM001") == run("--format", "json", "explain", "SHM001")


def test_only_takes_codes_names_and_areas(run: Run) -> None:
    for words in (["--only", "shm-too-small"], ["--only", "PCI,SHM"], ["--only", "NVL", "--only", "SHM001"]):
        _, output, _ = run("check", "--format", "json", *words)
        assert [finding["code"] for finding in json.loads(output)["findings"]] == ["SHM001"]
    _, output, _ = run("check", "--format", "json", "--only", "NVL")
    assert json.loads(output)["findings"] == []


BAD = {
    ("check", "--only", "SHM01"): "gpudoctor: no rule or area is called 'SHM01'; the nearest is SHM001",
    ("explain", "shm-to-small"): "gpudoctor: no rule is called 'shm-to-small'; the nearest is shm-too-small",
    ("chek",): "no command 'chek'; the nearest is check",
    ("check", "--onli", "X"): "unrecognized arguments: --onli",
    ("check", "extra"): "unrecognized arguments: extra",
    ("check", "--format", "xml"): "invalid choice: 'xml' (choose from ",
    ("check", "--fail-on", "fatal"): "invalid choice: 'fatal' (choose from ",
    ("check", "--timeout", "0"): "--timeout",
    ("check", "--timeout", "nan"): "--timeout",
    ("check", "--timeout", "soon"): "--timeout",
    ("check", "--only"): "--only: expected one argument",
    ("check", "--python", "/no/such/python"): "--python /no/such/python: no such program",
    ("check", "--policy", "/no/such.toml"): "/no/such.toml: No such file or directory",
    ("check", "--output", "/no/such/folder/report"): "cannot write /no/such/folder/report: No such file or directory",
    ("check", "--save", "/"): "cannot write /: it is a folder",
    ("check", "--quick", "--deep"): "--quick and --deep are two levels: choose one",
    ("check", "--force"): "--force loads GPUs that others use, which only --deep does",
    ("check", "--deep", "--from", "-"): "--deep measures this machine; pasted text (--from) cannot be measured",
    ("explain",): "the following arguments are required: CODE|NAME",
    (): "which command? check, profile, analyze, explain, rules",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_wrong_usage_gives_two_and_one_line(arguments: tuple[str, ...], run: Run) -> None:
    code, output, errors = run(*arguments)
    assert (code, output) == (2, "")
    assert BAD[arguments] in errors
    assert errors.startswith("gpudoctor: ")
    assert errors.count("\n") == 1


def test_wrong_usage_is_told_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def collect(*_: object, **__: object) -> Snapshot:
        raise AssertionError("the machine was read")

    monkeypatch.setattr(check, "collect", collect)
    (tmp_path / "gpudoctor.toml").write_text("[expct]")
    for arguments in (
        ("--output", "/no/such"),
        ("--save", "/no/such/f"),
        ("--policy", str(tmp_path / "gpudoctor.toml")),
    ):
        assert cli.run(["check", *arguments]) == 2


def test_an_internal_error_gives_three_and_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> None:
        raise RuntimeError("a\ndefect")

    monkeypatch.setattr(judging, "judge", judge)
    code, output, errors = run("check")
    assert (code, output, errors.count("\n")) == (3, "", 1)
    assert "internal error" in errors
    assert "RuntimeError: a defect" in errors
    monkeypatch.setenv("GPUDOCTOR_DEBUG", "1")
    with pytest.raises(RuntimeError):
        run("check")


def test_a_policy_ignores_requires_and_expects(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "gpudoctor.toml"
    policy.write_text('[[ignore]]\ncode = "SHM001"\nreason = "one worker"\n[expect]\ngpus = 8\n')
    code, output, _ = run("check", "--only", "SHM001", "--policy", str(policy), "--format", "json")
    told = json.loads(output)
    assert (code, told["verdict"]) == (0, "ok")
    assert told["ignored"] == [
        {"code": "SHM001", "name": "shm-too-small", "where": "/dev/shm", "reason": "one worker", "expires": None}
    ]
    assert told["snapshot"]["expected"]["gpus"] == 8
    policy.write_text('required = ["kernel_log"]\n')
    code, output, _ = run("check", "--policy", str(policy), "--format", "json", on=Snapshot(shm=Shm(exists=True)))
    assert (code, json.loads(output)["verdict"]) == (3, "not-checked")


def test_the_report_goes_to_a_file_whole(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    file.chmod(0o640)
    code, output, errors = run("check", "--format", "json", "--output", str(file))
    assert (code, output, errors) == (1, "", "")
    assert json.loads(file.read_text())["verdict"] == "findings"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]


def test_a_link_stays_a_link_and_a_device_a_device(run: Run, tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    assert run("check", "--output", str(link))[0] == 1
    assert link.is_symlink()
    assert file.read_text().startswith("✖ findings")
    assert run("check", "--output", os.devnull)[0] == 1
    assert not Path(os.devnull).is_file()


def test_output_dash_is_standard_output(run: Run) -> None:
    assert run("check", "--output", "-") == run("check")


def test_what_is_saved_can_be_read_again_and_names_nobody(run: Run, machine: Snapshot, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    run("check", "--save", str(file))
    saved = Snapshot.from_json(file.read_bytes())
    assert saved.host is not None
    assert saved.host.name == "host1"
    run("check", "--save", str(file), "--no-redact")
    assert Snapshot.from_json(file.read_bytes()) == machine


def test_markdown_is_redacted_unless_told_otherwise(run: Run) -> None:
    assert "node1" not in run("check", "--format", "markdown")[1]
    assert "node1" in run("check", "--format", "markdown", "--no-redact")[1]


def test_explain_tells_all_about_a_rule(run: Run) -> None:
    for word in ("SHM001", "shm001", "shm-too-small"):
        code, output, _ = run("explain", word)
        assert code == 0
        assert output.startswith("SHM001 shm-too-small · error")
    assert json.loads(run("explain", "SHM001", "--format", "json")[1])["confirm"] == "df -h /dev/shm"
    assert run("explain", "SHM001", "--format", "markdown")[1].startswith("### SHM001")


def test_rules_lists_all_by_area(run: Run) -> None:
    code, output, _ = run("rules")
    assert code == 0
    assert "SHM · shared memory" in output
    assert {rule["area"] for rule in json.loads(run("rules", "--format", "json")[1])} >= {"SHM", "SYS"}


def test_the_version_is_told(run: Run) -> None:
    assert run("--version") == (0, f"gpudoctor {__version__}\n", "")


def test_the_active_environment_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpudoctor.commands.interpreter import choose

    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert choose(None, {"VIRTUAL_ENV": str(tmp_path)}) == str(python)
    assert choose(None, {"CONDA_PREFIX": str(tmp_path)}) == str(python)
    assert choose(None, {"VIRTUAL_ENV": sys.prefix}) == sys.executable
    assert choose(str(python), {"VIRTUAL_ENV": sys.prefix}) == str(python)
    monkeypatch.setattr("gpudoctor.commands.interpreter.find_spec", lambda _: None)
    assert choose(None, {"PATH": str(python.parent)}) == str(python)
    assert choose(None, {"VIRTUAL_ENV": "/gone", "PATH": "/nowhere"}) == sys.executable


def test_only_picks_what_is_measured_and_deep_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[System] = []

    def collect(system: System, **_: object) -> Snapshot:
        seen.append(system)
        return Snapshot()

    monkeypatch.setattr(check, "collect", collect)
    cli.run(["check", "--deep", "--only", "PRE,NVL007"])
    cli.run(["check", "--deep", "--force"])
    cli.run(["check"])
    assert seen[0].stages == frozenset({"gemm", "memory", "host_link", "peer"})
    assert [(system.deep, system.force, system.stages, system.timeout_s) for system in seen[1:]] == [
        (True, True, None, 300.0),
        (False, False, None, 60.0),
    ]


def test_every_option_reaches_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CheckOptions] = []

    def run(options: CheckOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(check, "run", run)
    words = "--quick --only A,B --only C --python p --policy f --save s --no-redact --checkpoint-dir d --timeout 5"
    assert cli.run(["check", *words.split(), "--fail-on", "never", "--no-color"]) == 0
    (options,) = seen
    assert options.quick
    assert options.only == ("A,B", "C")
    assert (options.python, options.policy, options.save) == ("p", Path("f"), Path("s"))
    assert not options.redact
    assert (options.checkpoint_dir, options.timeout_s) == (Path("d"), 5.0)
    assert options.fail_on is FailOn.NEVER
    assert not options.output.colour
    assert cli.run(["check", "--deep", "--force"]) == 0
    assert (seen[1].deep, seen[1].force, seen[1].timeout_s) == (True, True, None)


@pytest.mark.slow
def test_help_is_there_before_one_notices() -> None:
    # Beside a bare interpreter, in turns, since other work slows both.
    pairs = [(_seconds("-c", "pass"), _seconds("-m", "gpudoctor", "--help")) for _ in range(7)]
    bare, helped = (min(times) for times in zip(*pairs, strict=True))
    assert helped < max(0.25, 4 * bare)


def _seconds(*arguments: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def test_no_help_and_no_list_of_rules_reads_the_machine_or_imports_rich() -> None:
    program = (
        "import sys\nfrom gpudoctor import cli\ncli.run(['--help'])\n"
        "print(sorted({'rich', 'gpudoctor.collect', 'gpudoctor.rules', 'torch', 'psutil'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "[]"


def test_the_document_is_built_from_what_was_read(machine: Snapshot) -> None:
    from datetime import date

    from gpudoctor.findings import Rule, Severity
    from gpudoctor.policy import Policy

    def judge(_: Any) -> Any:
        raise ValueError("broken")

    broken: Rule[Snapshot] = Rule("ZZZ001", "z", Severity.ERROR, "w", (), "c", "s", judge)
    document = judging.judge(machine, judging.Terms((broken,), Policy(), Severity.ERROR), date(2026, 12, 1))
    assert document.host == "node1"
    assert document.notes == ("rule ZZZ001 failed, a defect of gpudoctor: ValueError: broken",)
