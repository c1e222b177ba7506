"""What others can reach on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.exposure import Notebook
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.launch import is_loopback
from gpudoctor.snapshot import Snapshot

JUPYTER = "Jupyter Server documentation, Security in the Jupyter Server"


def _beyond_loopback(notebook: Notebook) -> bool | None:
    """Other machines can reach it; None where its address is not known."""
    return None if notebook.address is None else not is_loopback(notebook.address)


def _place(notebook: Notebook) -> str:
    address = f"[{notebook.address}]" if ":" in (notebook.address or "") else notebook.address
    return f"{address}:{notebook.port}" if notebook.port else f"{address}"


def _in_container(machine: Snapshot) -> bool:
    return machine.container is not None and machine.container.kind is not None


@rule(
    "SEC001",
    "jupyter-without-token",
    Severity.ERROR,
    why="whoever reaches the port runs commands as this user",
    fix=Fix("start it with its token, which is the default, or set a password", "jupyter server password", "restarts"),
    confirm="jupyter server list",
    source=JUPYTER,
)
def jupyter_without_token(machine: Snapshot) -> Iterator[Evidence]:
    """A Jupyter server asks for neither token nor password and listens beyond loopback.

    An info on loopback alone, which other users of this machine still reach. Likely in containers, where published
    ports decide who gets there. Silent for JupyterHub's servers (the hub asks) and where settings could not be read.
    """
    for notebook in (machine.exposure.notebooks if machine.exposure else None) or ():
        beyond = _beyond_loopback(notebook)
        if notebook.token is False and beyond is not None:
            yield Evidence(
                where=_place(notebook),
                what=f"Jupyter, process {notebook.pid}" if notebook.pid else "Jupyter",
                seen="no token, no password",
                wanted="a token",
                severity=None if beyond else Severity.INFO,
                confidence="likely" if _in_container(machine) else "certain",
            )


@rule(
    "SEC002",
    "jupyter-in-the-clear",
    Severity.WARNING,
    why="token, code and data cross the network readable to anyone on the way",
    fix=(
        Fix("listen on loopback and reach it by ssh -L 8888:localhost:8888", safety="restarts"),
        Fix("or give it a certificate: --certfile and --keyfile", safety="restarts"),
    ),
    confirm="jupyter server list; ss -ltn",
    source=JUPYTER,
)
def jupyter_in_the_clear(machine: Snapshot) -> Iterator[Evidence]:
    """A Jupyter server listens beyond loopback without TLS.

    Likely in containers, and an info in Kubernetes: a proxy before them usually brings TLS.
    """
    kubernetes = machine.container is not None and machine.container.kind == "kubernetes"
    for notebook in (machine.exposure.notebooks if machine.exposure else None) or ():
        if notebook.tls is False and _beyond_loopback(notebook):
            yield Evidence(
                where=_place(notebook),
                what=f"Jupyter, process {notebook.pid}" if notebook.pid else "Jupyter",
                seen="HTTP",
                wanted="loopback, or HTTPS",
                severity=Severity.INFO if kubernetes else None,
                confidence="likely" if _in_container(machine) else "certain",
            )


@rule(
    "SEC003",
    "ssh-password-login",
    Severity.WARNING,
    why="passwords are guessed day and night on every reachable address",
    fix=Fix("use keys, then set PasswordAuthentication no and reload sshd", safety="needs root"),
    confirm="sshd -T | grep -i passwordauthentication  # as root",
    source="sshd_config(5), PasswordAuthentication",
)
def ssh_password_login(machine: Snapshot) -> Iterator[Evidence]:
    """sshd runs and lets in whoever knows a password.

    Silent where sshd does not run, where AuthenticationMethods asks for a key too, and where its configuration could
    not be read or a Match block changes it for some.
    """
    if machine.exposure is not None and machine.exposure.sshd_running and machine.exposure.sshd_password:
        yield Evidence(where="sshd", what="PasswordAuthentication", seen="yes", wanted="no")


@rule(
    "SEC004",
    "ssh-root-password",
    Severity.ERROR,
    why="one guessed password gives the whole machine away",
    fix=Fix("set PermitRootLogin prohibit-password and reload sshd", safety="needs root"),
    confirm="sshd -T | grep -iE 'permitrootlogin|passwordauthentication'  # as root",
    source="sshd_config(5), PermitRootLogin",
)
def ssh_root_password(machine: Snapshot) -> Iterator[Evidence]:
    """sshd runs and lets root in with a password: PermitRootLogin is yes and passwords are accepted.

    Silent with prohibit-password (the default), and where passwords are off or not known to be on.
    """
    exposure = machine.exposure
    if exposure is None or not exposure.sshd_running or not exposure.sshd_password:
        return
    if exposure.sshd_root_login == "yes":
        yield Evidence(
            where="sshd", what="PermitRootLogin, with passwords accepted", seen="yes", wanted="prohibit-password"
        )


@rule(
    "SEC005",
    "docker-socket-mounted",
    Severity.WARNING,
    why="whoever can write to it starts containers as root on the host",
    fix=Fix("start the container without it, or use a rootless engine", safety="restarts"),
    confirm="ls -l /var/run/docker.sock",
    source="Docker documentation, Docker Engine security, Docker daemon attack surface",
)
def docker_socket_mounted(machine: Snapshot) -> Iterator[Evidence]:
    """A container engine's socket is there inside a container.

    Silent outside containers, and where the engine itself runs in here (Docker in Docker).
    """
    if machine.exposure is not None and machine.exposure.docker_socket and _in_container(machine):
        yield Evidence(where=machine.exposure.docker_socket, what="engine socket", seen="mounted", wanted="none")


RULES: tuple[Rule[Snapshot], ...] = (
    jupyter_without_token,
    jupyter_in_the_clear,
    ssh_password_login,
    ssh_root_password,
    docker_socket_mounted,
)
