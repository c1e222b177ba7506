"""The interpreter under examination."""

import sys
from pathlib import Path

import pytest

from gpudoctor.probes.interpreter import Interpreter, examine
from gpudoctor.probes.system import NotRead, System


def test_our_own_interpreter_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(System, "run", lambda *_, **__: pytest.fail("it was run"))
    found = examine(System())
    assert found.executable == sys.executable
    assert found.version.startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert found.site_packages


def test_another_environment_is_asked_and_gives_its_path(tmp_path: Path) -> None:
    """PYTHONPATH differs from ours, so our own path would be wrong."""
    found = examine(System(environ={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}))
    assert found.path[0] == str(tmp_path)
    assert found.tag == examine(System()).tag


def test_start_up_files_that_print_do_not_get_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('welcome'); print('@gpudoctor?')")
    assert examine(System(environ={"PYTHONPATH": str(tmp_path)})).path[0] == str(tmp_path)


def test_a_json_py_in_the_working_folder_is_not_taken_for_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not me')")
    monkeypatch.chdir(tmp_path)
    assert examine(System(environ={"PYTHONDONTWRITEBYTECODE": "x"})).version


def test_a_missing_interpreter_is_said() -> None:
    with pytest.raises(NotRead, match="no-such-python not found"):
        examine(System(python="no-such-python"))


def test_one_that_answers_nothing_is_said() -> None:
    with pytest.raises(NotRead, match="gave no answer"):
        examine(System(python="/bin/true"))


def test_a_recorded_environment_is_read_from_its_folders(tmp_path: Path) -> None:
    (tmp_path / "opt/venv/lib/python3.13t/site-packages").mkdir(parents=True)
    (tmp_path / "opt/venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.2\n")
    found = examine(System(root=tmp_path, python="/opt/venv/bin/python"))
    assert (found.version, found.tag) == ("3.13.2", "cp313t")
    assert found.site_packages == ("/opt/venv/lib/python3.13t/site-packages",)


def test_a_recorded_machine_without_that_environment_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="not found"):
        examine(System(root=tmp_path, python="/opt/venv/bin/python"))


def test_distributions_of_debian_are_site_packages_too() -> None:
    path = ("/usr/lib/python3.11", "/usr/lib/python3/dist-packages")
    assert Interpreter("/usr/bin/python3", "3.11.2", path).site_packages == ("/usr/lib/python3/dist-packages",)
