"""Find running Jupyter servers, and whether they ask who is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpudoctor.facts.exposure import Notebook
from gpudoctor.probes.sockets import Listener, arguments, inodes, listeners, processes
from gpudoctor.probes.system import NotRead, System

COMMANDS = {"jupyter-lab", "jupyter-notebook", "jupyter-server", "jupyter-nbclassic"}
MODULES = {"jupyterlab", "notebook", "jupyter_server", "nbclassic"}
SUBCOMMANDS = {"lab", "notebook", "server", "nbclassic"}
# `jupyter server list` and its kin end at once.
SHORT_LIVED = {"list", "stop", "password", "--version", "-h", "--help", "--generate-config", "extension"}
EVERY_INTERFACE = {"", "*", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
# A configuration file that sets one of these asks for a login which neither command line nor runtime file shows.
LOGIN = re.compile(
    r"^[^#\n]*?(?:password|authenticat|identity_provider_class|login_handler)\w*[\"']?\s*[:=]\s*(?P<value>[^,}\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
EMPTY = {"", "''", '""', "u''", "none", "false"}


def notebooks(system: System) -> tuple[Notebook, ...]:
    """By process number. Only what this user may see."""
    try:
        open_ports = listeners(system)
    except NotRead:
        open_ports = ()
    return tuple(
        _notebook(system, pid, folder, words, open_ports)
        for pid, folder in processes(system)
        if is_server(words := arguments(folder))
    )


def is_server(words: tuple[str, ...]) -> bool:
    """A command line is a Jupyter server's, and not a hub's single-user one nor a shell that starts it."""
    if words and Path(words[0]).name.startswith(("python", "pypy")):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[2:] if words[0] in {"-X", "-W"} else words[1:]
    module = words[:1] == ("-m",)
    name, rest = (words[1:2] or ("",))[0] if module else Path((words or ("",))[0]).name, words[2 if module else 1 :]
    if name == "jupyter" and rest and rest[0] in SUBCOMMANDS:
        return not SHORT_LIVED & set(rest[1:2])
    return (name.partition(".")[0] in MODULES if module else name in COMMANDS) and not SHORT_LIVED & set(rest[:1])


def _notebook(
    system: System, pid: int, folder: Path, words: tuple[str, ...], open_ports: tuple[Listener, ...]
) -> Notebook:
    options, told = _options(words), _runtime(system, pid, folder)
    held = inodes(folder)
    mine = [listener for listener in open_ports if listener.inode in held]
    port = _number(told.get("port")) or _number(options.get("port"))
    # The socket is the truth, the settings the next best.
    chosen = sorted(mine, key=lambda one: (one.port != port, one.address not in EVERY_INTERFACE))[:1]
    address = chosen[0].address if chosen else _told_address(options, told)
    certificate = options.get("certfile")
    return Notebook(
        pid=pid,
        address=address,
        port=chosen[0].port if chosen else port,
        token=_asks(system, options, told, _home(folder)),
        tls=bool(certificate) if certificate is not None else _boolean(told.get("secure")),
    )


def _options(words: tuple[str, ...]) -> dict[str, str]:
    """`--ServerApp.token=''` and `--ip 0.0.0.0` by their last part, lower case; the last one of a name counts."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            following = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("-") else None
            given = value if equals else following
            if given is not None:
                found[name.rpartition(".")[2].lstrip("-").lower()] = given.strip("'\"")
    return found


def _told_address(options: Mapping[str, str], told: Mapping[str, Any]) -> str | None:
    if told.get("sock") or options.get("sock"):
        return None
    address = options.get("ip") or told.get("hostname")
    return None if address is None else "0.0.0.0" if address in EVERY_INTERFACE else str(address)  # noqa: S104


def _asks(system: System, options: Mapping[str, str], told: Mapping[str, Any], home: str | None) -> bool | None:
    """Only a server that says so has no login: the default is a token of its own making.

    Source: Jupyter Server documentation, Security in the Jupyter Server.
    """
    if any(options.get(name) for name in ("password", "hashed_password", "token")):
        return True
    if told.get("password") or (told.get("token") and "token" not in options):
        return True
    if "identity_provider_class" in options or ("token" not in options and told.get("token") is None):
        return None
    return None if _configured_login(system, home) else False


def _configured_login(system: System, home: str | None) -> bool:
    """A configuration file speaks of a login, or may not be read: what it says is not worked out here."""
    folders = [*([f"{home}/.jupyter"] if home else []), "/etc/jupyter", "/usr/local/etc/jupyter"]
    patterns = ("jupyter_*config.json", "jupyter_*config.py", "jupyter_*config.d/*.json")
    for path in (path for folder in folders for pattern in patterns for path in system.glob(f"{folder}/{pattern}")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        if any(match["value"].strip().lower() not in EMPTY for match in LOGIN.finditer(text)):
            return True
    return False


def _runtime(system: System, pid: int, process: Path) -> dict[str, Any]:
    """What the server has written down about itself; empty where that may not be read."""
    environ = system.environ
    folders = [environ["JUPYTER_RUNTIME_DIR"]] if environ.get("JUPYTER_RUNTIME_DIR") else []
    folders += [f"{environ['XDG_DATA_HOME']}/jupyter/runtime"] if environ.get("XDG_DATA_HOME") else []
    homes = dict.fromkeys(filter(None, (_home(process), environ.get("HOME"), "/root", *_homes(system))))
    folders += [f"{home}/.local/share/jupyter/runtime" for home in homes]
    for folder in folders:
        for kind in ("jpserver", "nbserver"):
            text = system.text_or_none(f"{folder}/{kind}-{pid}.json")
            with suppress(ValueError):
                if text and isinstance(told := json.loads(text), dict) and told.get("pid") == pid:
                    return told
    return {}


def _homes(system: System) -> list[str]:
    with suppress(OSError):
        return [f"/{folder.relative_to(system.root)}" for folder in system.glob("/home/*")]
    return []


def _home(process: Path) -> str | None:
    """HOME of a process of ours; another user's environment may not be read."""
    with suppress(OSError):
        for entry in (process / "environ").read_bytes().split(b"\0"):
            if entry.startswith(b"HOME="):
                return entry[5:].decode("utf-8", errors="surrogateescape")
    return None


def _number(value: object) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
