"""What others can reach on this machine."""

from gpudoctor.facts.container import Container
from gpudoctor.facts.exposure import Exposure, Notebook
from gpudoctor.findings import Evidence, Rule, Severity
from gpudoctor.rules.exposure import (
    docker_socket_mounted,
    jupyter_in_the_clear,
    jupyter_without_token,
    ssh_password_login,
    ssh_root_password,
)
from gpudoctor.snapshot import Snapshot


def _notebook(asked: Rule[Snapshot], kind: str | None = None, **fields: object) -> list[Evidence]:
    notebook = Notebook(pid=7, port=8888, **fields)  # type: ignore[arg-type]
    return list(asked.judge(Snapshot(exposure=Exposure(notebooks=(notebook,)), container=Container(kind=kind))))


def test_a_notebook_without_a_token_is_an_error_beyond_loopback() -> None:
    (found,) = _notebook(jupyter_without_token, address="0.0.0.0", token=False)
    assert (found.where, found.severity, found.confidence) == ("0.0.0.0:8888", None, "certain")
    (six,) = _notebook(jupyter_without_token, address="::", token=False)
    assert six.where == "[::]:8888"


def test_a_notebook_without_a_token_is_likely_in_a_container_and_an_info_on_loopback() -> None:
    (inside,) = _notebook(jupyter_without_token, "docker", address="0.0.0.0", token=False)
    assert inside.confidence == "likely"
    for address in ("127.0.0.1", "::1", "localhost"):
        assert [found.severity for found in _notebook(jupyter_without_token, address=address, token=False)] == [
            Severity.INFO
        ]


def test_a_notebook_with_a_token_or_of_unknown_settings_says_nothing() -> None:
    assert _notebook(jupyter_without_token, address="0.0.0.0", token=True) == []
    assert _notebook(jupyter_without_token, address="0.0.0.0") == []
    assert _notebook(jupyter_without_token, token=False) == []
    assert list(jupyter_without_token.judge(Snapshot(exposure=Exposure()))) == []


def test_a_notebook_in_the_clear_speaks_beyond_loopback() -> None:
    (found,) = _notebook(jupyter_in_the_clear, address="10.0.0.1", tls=False)
    assert found.seen == "HTTP"
    (inside,) = _notebook(jupyter_in_the_clear, "kubernetes", address="0.0.0.0", tls=False)
    assert (inside.severity, inside.confidence) == (Severity.INFO, "likely")


def test_a_notebook_on_loopback_or_with_tls_says_nothing() -> None:
    assert _notebook(jupyter_in_the_clear, address="localhost", tls=False) == []
    assert _notebook(jupyter_in_the_clear, address="0.0.0.0", tls=True) == []
    assert _notebook(jupyter_in_the_clear, address="0.0.0.0") == []
    assert _notebook(jupyter_in_the_clear, tls=False) == []


def _ssh(asked: Rule[Snapshot], running: bool | None, password: bool | None, root: str | None) -> int:
    fact = Exposure(sshd_running=running, sshd_password=password, sshd_root_login=root)
    return len(list(asked.judge(Snapshot(exposure=fact))))


def test_ssh_passwords_speak_where_sshd_runs() -> None:
    assert _ssh(ssh_password_login, True, True, "no") == 1
    assert _ssh(ssh_root_password, True, True, "yes") == 1


def test_ssh_is_quiet_where_it_does_not_run_takes_keys_alone_or_is_unknown() -> None:
    for running, password in ((False, True), (None, True), (True, False), (True, None)):
        assert _ssh(ssh_password_login, running, password, "yes") == 0
        assert _ssh(ssh_root_password, running, password, "yes") == 0
    for root in ("prohibit-password", "no", "forced-commands-only", None):
        assert _ssh(ssh_root_password, True, True, root) == 0


def test_an_engines_socket_matters_inside_a_container_alone() -> None:
    fact = Exposure(docker_socket="/var/run/docker.sock")
    inside = Snapshot(exposure=fact, container=Container(kind="docker"))
    assert [found.where for found in docker_socket_mounted.judge(inside)] == ["/var/run/docker.sock"]
    assert list(docker_socket_mounted.judge(Snapshot(exposure=fact, container=Container(kind=None)))) == []
    assert list(docker_socket_mounted.judge(Snapshot(exposure=fact))) == []
