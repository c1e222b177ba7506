"""Read the environment variables that change a training job, and NCCL's configuration files."""

from __future__ import annotations

import re

from gpudoctor.facts.environment import Environment
from gpudoctor.probes.system import System
from gpudoctor.readers.environment import is_secret, is_taken


def read(system: System) -> Environment:
    """Variables by known name alone, never one that looks like a secret."""
    taken = {name: value for name, value in system.environ.items() if is_taken(name, value)}
    unread: dict[str, str] = {}
    return Environment(
        variables={_decodable(name): _decodable(value) for name, value in sorted(taken.items())},
        nccl_config=_nccl_config(system, unread),
        undecodable=tuple(sorted(_decodable(name) for name, value in taken.items() if _decodable(value) != value)),
        unread=unread,
    )


def _decodable(text: str) -> str:
    """What came in as surrogates stands as U+FFFD: JSON has no place for raw bytes."""
    return text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")


def _nccl_config(system: System, unread: dict[str, str]) -> dict[str, str]:
    """As NCCL reads it: the user's file first, then /etc/nccl.conf, and the first value of a name stays.

    Source: NVIDIA/nccl 2.30.7, src/misc/param.cc.
    """
    settings: dict[str, str] = {}
    named = system.environ.get("NCCL_CONF_FILE")
    home = system.environ.get("HOME")
    own = named or (f"{home}/.nccl.conf" if home else None)
    for path in (own, "/etc/nccl.conf"):
        if path is None:
            continue
        try:
            if not system.path(path).is_file():  # a pipe by that name would hold the probe up
                if path == named:
                    unread["nccl_config"] = f"NCCL_CONF_FILE: {_decodable(path)} is no file"
                continue
            text = system.text(path)
        except OSError as error:
            unread["nccl_config"] = f"{_decodable(path)}: {error.strerror}"
            continue
        for name, value in re.findall(r"^(NCCL_\w+)=(.*)$", text, re.MULTILINE):
            if not is_secret(name, value):
                settings.setdefault(name, _decodable(value))
    return settings
