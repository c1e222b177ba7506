"""What no linter knows: rules that tell all, documents that are current, folders that ship."""

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from gpudoctor.findings import Rule
from gpudoctor.rules import AREAS, MACHINE_RULES
from gpudoctor.rules.every import ALL_RULES, RUN_RULES

ROOT = Path(__file__).resolve().parent.parent
PROJECT = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())

SUBJECT = {
    "rules": re.compile(r"^@rule\(", re.MULTILINE),
    "probes": re.compile(r"^def read\(", re.MULTILINE),
    "reports": re.compile(r"^def render\(", re.MULTILINE),
    "tables": re.compile(r"^def load\(", re.MULTILINE),
}
"""What a file of each room has that stands for a subject."""

every_rule = pytest.mark.parametrize("asked", ALL_RULES, ids=lambda asked: asked.code)


def test_codes_and_names_are_unique() -> None:
    for rules in (MACHINE_RULES, RUN_RULES, ALL_RULES):
        for words in ([rule.code for rule in rules], [rule.name for rule in rules]):
            assert sorted({word for word in words if words.count(word) > 1}) == []


def test_a_code_that_judges_machines_and_jobs_has_one_name() -> None:
    names = {rule.code: rule.name for rule in RUN_RULES}
    assert all(names.get(rule.code, rule.name) == rule.name for rule in MACHINE_RULES)


@every_rule
def test_a_rule_has_a_known_area_and_a_name_of_small_words(asked: Rule[Any]) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d{3}", asked.code)
    assert asked.area in AREAS
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", asked.name)


@every_rule
def test_a_rule_tells_when_why_how_and_whence(asked: Rule[Any]) -> None:
    for text in (asked.fires_when, asked.why, asked.confirm, asked.source, *(fix.text for fix in asked.fix)):
        assert text.strip() == text
        assert text
    assert asked.fires_when.endswith(".")
    assert asked.fix
    assert not asked.why.endswith(".")
    for fix in asked.fix:
        assert fix.command is None or fix.command.strip() == fix.command != ""


@every_rule
def test_a_cause_is_a_rule(asked: Rule[Any]) -> None:
    assert set(asked.because) <= {rule.code for rule in ALL_RULES} - {asked.code}


def test_every_rule_written_is_registered() -> None:
    for file in _modules("gpudoctor/rules"):
        written = re.findall(r'^@rule\(\s*"([A-Z]{3}\d{3})"', file.read_text(encoding="utf-8"), re.MULTILINE)
        missing = set(written) - {rule.code for rule in ALL_RULES}
        assert not missing, f"{file.name} holds rules that stand in no RULES: {missing}"


@pytest.mark.parametrize("room", ["rules", "probes", "reports", "tables"])
def test_every_file_of_a_room_has_a_test_of_its_name(room: str) -> None:
    folder = "probes" if room == "probes" else f"gpudoctor/{room}"
    tests = {file.stem.removeprefix("test_") for file in (ROOT / "tests" / room).glob("test_*.py")}
    covered_by_others = {"reports": {"document", "page", "plain"}}.get(room, set())
    # A file that holds no rule, no probe and no table serves those that do, and is tested through them.
    own = {file.stem for file in _modules(folder) if SUBJECT[room].search(file.read_text(encoding="utf-8"))}
    assert own - tests - covered_by_others == set()


def test_every_package_folder_ships() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for file in (ROOT / "gpudoctor").rglob("*.py")
        if "probes" not in file.relative_to(ROOT).parts
    }
    assert listed == folders | {"gpudoctor.probes"}


def test_every_row_of_every_table_has_a_source() -> None:
    files = sorted((ROOT / "gpudoctor/tables").glob("*.toml"))
    assert files
    for file in files:
        tables = msgspec.toml.decode(file.read_bytes())
        whole = tables.get("source") or tables.get("sources")
        for name, rows in tables.items():
            for row in _rows(rows):
                assert _sourced(row) or whole or tables.get(f"{name}_source"), f"{file.name}: {name}: {row}"


def test_generated_documents_are_current() -> None:
    generate = _load(ROOT / "docs/generate.py")
    stale = [name for name, text in generate.FILES.items() if (ROOT / name).read_text(encoding="utf-8") != text()]
    assert stale == [], "run python docs/generate.py"


@pytest.mark.parametrize("command", [(), ("check",)])
def test_help_lists_the_exit_codes_and_fits_eighty_columns(command: tuple[str, ...]) -> None:
    text = _help(*command)
    for number in range(4):
        assert re.search(rf"^ +{number}  \w", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


def test_every_option_of_check_has_a_help_text() -> None:
    options = re.split(r"\n(?=  -)", _help("check").split("options:\n")[1].split("exit codes")[0])
    for option in options:
        assert re.search(r"\s{2,}\S.*[a-z]", option.strip().replace("\n", "  "), re.DOTALL), option


def test_nothing_imports_the_probes_of_a_training_repository() -> None:
    for file in _modules("gpudoctor", "probes", "tests", deep=True):
        assert not re.search(r"^\s*(from|import) probes\b", file.read_text(encoding="utf-8"), re.MULTILINE), file


def _modules(*folders: str, deep: bool = False) -> list[Path]:
    pattern = "**/*.py" if deep else "*.py"
    found = (file for folder in folders for file in sorted((ROOT / folder).glob(pattern)))
    return [file for file in found if not file.stem.startswith("__")]


def _rows(value: Any) -> list[dict[str, Any]]:
    """The tables of an array of tables, or of a table of tables."""
    if isinstance(value, dict):
        value = list(value.values())
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _sourced(row: dict[str, Any]) -> bool:
    return any(name.startswith("source") and text for name, text in row.items())


def _load(file: Path) -> ModuleType:
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _help(*command: str) -> str:
    words = [sys.executable, "-m", "gpudoctor", *command, "--help"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
