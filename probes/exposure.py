"""Read what this machine offers to others: Jupyter servers, sshd, a container engine's socket."""

from __future__ import annotations

import re

from gpudoctor.facts.exposure import Exposure
from gpudoctor.probes import jupyter, sshd
from gpudoctor.probes.sockets import arguments, processes
from gpudoctor.probes.system import NotRead, System

# Socket → the engine behind it.
ENGINES = {
    "/var/run/docker.sock": "dockerd",
    "/run/docker.sock": "dockerd",
    "/run/containerd/containerd.sock": "containerd",
    "/run/podman/podman.sock": "podman",
    "/run/crio/crio.sock": "crio",
}


def read(system: System) -> Exposure:
    """Other users' servers are seen as far as /proc shows them. Raises NotRead where there is no /proc."""
    folders = [folder for _, folder in processes(system)]
    if not folders:
        raise NotRead("no /proc")
    by_name: dict[str | None, list[str]] = {}
    for folder in folders:
        name = system.text_or_none(f"/proc/{folder.name}/comm")
        by_name.setdefault(name, []).append(" ".join(arguments(folder)) if name == "sshd" else "")
    unread: dict[str, str] = {}
    values = _sshd(system, by_name["sshd"], unread) if "sshd" in by_name else {}
    return Exposure(
        notebooks=jupyter.notebooks(system),
        sshd_running="sshd" in by_name,
        sshd_password=sshd.password_opens(values) if values else None,
        sshd_root_login=values.get("permitrootlogin"),
        docker_socket=next(
            (path for path, engine in ENGINES.items() if engine not in by_name and _exists(system, path)), None
        ),
        unread=unread,
    )


def _sshd(system: System, titles: list[str], unread: dict[str, str]) -> dict[str, str | None]:
    """Empty where its command line names other settings: `sshd: /usr/sbin/sshd -D -o … [listener] 0 of 10 startups`."""
    if any(re.search(r"sshd (.* )?-[fo]", title) for title in titles):
        unread["sshd_config"] = "sshd has options on its command line"
        return {}
    if not _exists(system, sshd.CONFIG):
        unread["sshd_config"] = f"no {sshd.CONFIG}"
        return {}
    values = sshd.settings(system, unread)
    if values["permitrootlogin"] == "without-password":  # its older name
        values["permitrootlogin"] = "prohibit-password"
    return values


def _exists(system: System, path: str) -> bool:
    try:
        return system.path(path).exists()
    except OSError:  # a folder above it may not be entered
        return False
