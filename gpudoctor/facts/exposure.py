"""What this machine offers to others: notebooks, ssh, the container engine."""

from gpudoctor.facts.base import Fact, Subject


class Notebook(Fact, frozen=True, kw_only=True):
    """One running Jupyter server. A hub's single-user servers are left out: the hub asks for the login."""

    pid: int | None = None
    address: str | None = None
    """Address it listens on; `0.0.0.0` and `::` mean every interface. None for a Unix socket."""
    port: int | None = None
    token: bool | None = None
    """It asks for a token or a password; None where its settings could not be read."""
    tls: bool | None = None


class Exposure(Subject, frozen=True, kw_only=True):
    """Running servers and their settings."""

    notebooks: tuple[Notebook, ...] | None = None
    sshd_running: bool | None = None
    sshd_password: bool | None = None
    """A password alone opens a session, as sshd's configuration files resolve it; None where they do not tell."""
    sshd_root_login: str | None = None
    """PermitRootLogin: `yes`, `no`, `prohibit-password`, `forced-commands-only`."""
    docker_socket: str | None = None
    """Path of a container engine's socket whose engine does not run in here (inside a container: the host's)."""
