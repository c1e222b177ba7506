"""Jupyter by its command line and its runtime file, sshd's configuration, a container engine's socket."""

import json
from pathlib import Path

import msgspec
import pytest

from gpudoctor.facts.exposure import Exposure, Notebook
from gpudoctor.probes import exposure
from gpudoctor.probes.jupyter import is_server
from gpudoctor.probes.system import NotRead, System


def _process(root: Path, pid: int, *words: str, name: str = "python", home: str | None = None, inode: int = 0) -> None:
    folder = root / f"proc/{pid}"
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    if home:
        (folder / "environ").write_text(f"PATH=/bin\0HOME={home}\0")
    if inode:
        (folder / "fd/6").symlink_to(f"socket:[{inode}]")


def _listening(root: Path, address: str, port: int, inode: int) -> None:
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    line = f"   0: {address}:{port:04X} 00000000:0000 0A 0:0 00:0 00000000 1000 0 {inode} 1 0 100"
    (root / "proc/net/tcp").write_text(f"  sl  local_address\n{line}\n")


def _runtime(root: Path, home: str, pid: int, **told: object) -> None:
    folder = root / home.lstrip("/") / ".local/share/jupyter/runtime"
    folder.mkdir(parents=True)
    told = {"hostname": "localhost", "port": 8888, "token": "", "password": False, "secure": False, "pid": pid, **told}
    (folder / f"jpserver-{pid}.json").write_text(json.dumps(told))


def _read(root: Path) -> Exposure:
    return exposure.read(System(root=root, environ={}))


def _only_notebook(root: Path) -> Notebook:
    (found,) = _read(root).notebooks or ()
    return found


LAB = ("/opt/venv/bin/python", "/opt/venv/bin/jupyter-lab")


def test_a_server_started_with_an_empty_token_asks_for_none(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, "--ip=0.0.0.0", "--port=9999", "--ServerApp.token=", "--ServerApp.password=")
    assert _only_notebook(tmp_path) == Notebook(pid=7, address="0.0.0.0", port=9999, token=False)


def test_an_empty_token_as_a_word_of_its_own_at_the_end_counts_too(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, "--ip", "*", "--IdentityProvider.token", "")
    assert (_only_notebook(tmp_path).token, _only_notebook(tmp_path).address) == (False, "0.0.0.0")


def test_the_runtime_file_and_the_socket_tell_the_rest_and_no_token_is_kept(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, home="/home/me", inode=99)
    _listening(tmp_path, "00000000", 8890, 99)
    _runtime(tmp_path, "/home/me", 7, token="5ecret", port=8890)
    found = _only_notebook(tmp_path)
    assert found == Notebook(pid=7, address="0.0.0.0", port=8890, token=True, tls=False)
    assert b"5ecret" not in msgspec.json.encode(found)


def test_a_token_switched_off_in_a_configuration_file_shows_in_the_runtime_file(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, home="/home/me")
    _runtime(tmp_path, "/home/me", 7, hostname="0.0.0.0", secure=True)
    folder = tmp_path / "home/me/.jupyter"
    folder.mkdir()
    (folder / "jupyter_server_config.py").write_text(
        "c.ServerApp.token = ''\n# c.ServerApp.password = 'x'\nc.ServerApp.password = ''\n"
    )
    assert _only_notebook(tmp_path) == Notebook(pid=7, address="0.0.0.0", port=8888, token=False, tls=True)


def test_a_hashed_password_in_a_configuration_file_leaves_it_open(tmp_path: Path) -> None:
    """`jupyter server password` writes this file, and the runtime file then shows neither token nor password."""
    _process(tmp_path, 7, *LAB, home="/home/me")
    _runtime(tmp_path, "/home/me", 7, hostname="0.0.0.0")
    folder = tmp_path / "home/me/.jupyter"
    folder.mkdir()
    (folder / "jupyter_server_config.json").write_text('{"IdentityProvider": {"hashed_password": "argon2:$x"}}')
    assert _only_notebook(tmp_path).token is None


def test_a_server_whose_settings_are_hidden_stays_unknown(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, "--ip=0.0.0.0")
    assert _only_notebook(tmp_path).token is None


def test_a_runtime_file_of_another_process_is_not_taken(tmp_path: Path) -> None:
    _process(tmp_path, 7, *LAB, home="/home/me")
    _runtime(tmp_path, "/home/me", 8)
    assert _only_notebook(tmp_path).token is None


@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/python3.12", "-I", "/usr/bin/jupyter-notebook"),
        ("python", "-X", "dev", "-m", "jupyterlab"),
        ("python3", "-m", "notebook", "--ip=0.0.0.0"),
        ("jupyter-lab",),
        ("/opt/conda/bin/python", "/opt/conda/bin/jupyter", "lab"),
    ],
)
def test_servers_are_known_by_their_command_line(words: tuple[str, ...]) -> None:
    assert is_server(words)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("python", "-m", "ipykernel_launcher", "-f", "kernel.json"),
        ("python", "/opt/bin/jupyterhub-singleuser", "--ip=0.0.0.0"),
        ("python", "/opt/bin/jupyter-labhub"),
        ("/bin/sh", "-c", "jupyter lab --ip=0.0.0.0"),
        ("tini", "-g", "--", "jupyter", "lab"),
        ("vim", "jupyter-lab"),
        ("python", "/opt/bin/jupyter", "server", "list"),
        ("python", "train.py", "jupyter-lab"),
    ],
)
def test_other_programs_are_not(words: tuple[str, ...]) -> None:
    assert not is_server(words)


def _sshd(root: Path, text: str, *, title: str = "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups") -> Exposure:
    _process(root, 9, title, name="sshd")
    (root / "etc/ssh/sshd_config.d").mkdir(parents=True)
    (root / "etc/ssh/sshd_config").write_text(text)
    return _read(root)


def test_sshd_defaults_let_passwords_in_and_root_only_with_a_key(tmp_path: Path) -> None:
    fact = _sshd(tmp_path, "# PasswordAuthentication no\n")
    assert (fact.sshd_running, fact.sshd_password, fact.sshd_root_login) == (True, True, "prohibit-password")


def test_the_first_value_counts_and_included_files_come_in_place(tmp_path: Path) -> None:
    (tmp_path / "etc/ssh/sshd_config.d").mkdir(parents=True)
    (tmp_path / "etc/ssh/sshd_config.d/50-cloud.conf").write_text("PasswordAuthentication no\n")
    _process(tmp_path, 9, "sshd", name="sshd")
    (tmp_path / "etc/ssh/sshd_config").write_text(
        "Include /etc/ssh/sshd_config.d/*.conf\nPermitRootLogin=yes\nPermitRootLogin no\nPASSWORDAUTHENTICATION yes\n"
    )
    fact = _read(tmp_path)
    assert (fact.sshd_password, fact.sshd_root_login, fact.unread) == (False, "yes", {})


def test_a_match_block_that_changes_it_makes_it_unknown(tmp_path: Path) -> None:
    fact = _sshd(tmp_path, "PasswordAuthentication no\nMatch Address 10.0.0.0/8\n  PasswordAuthentication yes\n")
    assert fact.sshd_password is None
    assert "Match" in fact.unread["sshd_config"]


def test_a_match_block_on_something_else_changes_nothing(tmp_path: Path) -> None:
    fact = _sshd(tmp_path, "PermitRootLogin without-password\nMatch User sftp\n  ForceCommand internal-sftp\n")
    assert (fact.sshd_password, fact.sshd_root_login) == (True, "prohibit-password")


def test_a_second_factor_is_no_login_by_password(tmp_path: Path) -> None:
    assert _sshd(tmp_path, "AuthenticationMethods publickey,password\n").sshd_password is False


def test_an_included_file_that_cannot_be_read_leaves_open_what_no_line_before_it_set(tmp_path: Path) -> None:
    (tmp_path / "etc/ssh/sshd_config.d/50.conf").mkdir(parents=True)  # EISDIR stands for EACCES, which root never gets
    _process(tmp_path, 9, "sshd", name="sshd")
    (tmp_path / "etc/ssh/sshd_config").write_text(
        "PermitRootLogin no\nInclude sshd_config.d/*.conf\nPasswordAuthentication yes\n"
    )
    fact = _read(tmp_path)
    assert (fact.sshd_password, fact.sshd_root_login) == (None, "no")


def test_options_on_sshds_command_line_make_its_files_worthless(tmp_path: Path) -> None:
    fact = _sshd(tmp_path, "", title="/usr/sbin/sshd -D -o PasswordAuthentication=no")
    assert (fact.sshd_running, fact.sshd_password, fact.sshd_root_login) == (True, None, None)


def test_sshd_that_does_not_run_has_no_settings(tmp_path: Path) -> None:
    _process(tmp_path, 1, "init", name="init")
    assert _read(tmp_path) == Exposure(notebooks=(), sshd_running=False)


def test_an_engines_socket_is_named_unless_the_engine_runs_here(tmp_path: Path) -> None:
    _process(tmp_path, 1, "bash", name="bash")
    (tmp_path / "var/run").mkdir(parents=True)
    (tmp_path / "var/run/docker.sock").touch()
    assert _read(tmp_path).docker_socket == "/var/run/docker.sock"
    _process(tmp_path, 2, "dockerd", name="dockerd")
    assert _read(tmp_path).docker_socket is None


def test_a_machine_without_proc_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(NotRead):
        _read(tmp_path)


def test_this_machine_can_be_read() -> None:
    assert exposure.read(System(environ={})).sshd_running is not None
