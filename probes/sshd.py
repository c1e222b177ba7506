"""Read sshd's configuration files as sshd does: the first value counts, Include in place, Match blocks apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from glob import has_magic

from gpudoctor.probes.system import System

CONFIG = "/etc/ssh/sshd_config"
MOST_INCLUDES = 16  # sshd's own limit on the depth
DEFAULTS = {"passwordauthentication": "yes", "permitrootlogin": "prohibit-password", "authenticationmethods": "any"}


def settings(system: System, unread: dict[str, str]) -> dict[str, str | None]:
    """Values of DEFAULTS' keywords, lower case. None, with the reason in `unread`, where they cannot be told.

    Source: sshd_config(5), OpenSSH 9.
    """
    found: dict[str, str | None] = {}
    for keyword, value, matched in _statements(system, CONFIG, 0, in_match=False):
        if keyword == "unreadable":  # it may set whatever no line before it has set
            unread["sshd_config"] = value
            found = {**dict.fromkeys(DEFAULTS), **found}
        elif keyword in DEFAULTS and matched:
            unread["sshd_config"] = f"a Match block sets {keyword} for some"
            found[keyword] = None
        elif keyword in DEFAULTS:
            found.setdefault(keyword, value.lower())
    return {**DEFAULTS, **found}


def password_opens(values: dict[str, str | None]) -> bool | None:
    """A password alone is enough to log in."""
    methods, allowed = values["authenticationmethods"], values["passwordauthentication"]
    if methods is None or allowed is None:
        return None
    alone = methods == "any" or any(
        re.match(r"(password|keyboard-interactive)\b[^,]*$", one) for one in methods.split()
    )
    return allowed == "yes" and alone


def _statements(system: System, path: str, depth: int, *, in_match: bool) -> Iterator[tuple[str, str, bool]]:
    """Keyword (lower case), value, and whether it stands in a Match block. A file that cannot be read is a
    statement `unreadable`.
    """
    try:
        text = system.text(path)
    except FileNotFoundError:
        return
    except OSError as error:
        yield "unreadable", f"{path}: {error.strerror}", in_match
        return
    for line in text.splitlines():
        # `Keyword value`, `Keyword=value`, `Keyword "value"`
        parts = re.match(r"\s*(\w+)\s*[=\s]\s*(.*?)\s*$", line.partition("#")[0])
        if parts is None:
            continue
        keyword, value = parts[1].lower(), parts[2].replace('"', "")
        if keyword == "match":
            in_match = value.lower() != "all"
        elif keyword == "include" and depth < MOST_INCLUDES:
            for included in _included(system, value):
                yield from _statements(system, included, depth + 1, in_match=in_match)
        else:
            yield keyword, value, in_match


def _included(system: System, patterns: str) -> Iterator[str]:
    """Relative to /etc/ssh, sorted, as sshd takes them."""
    for pattern in patterns.split():
        absolute = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
        if has_magic(absolute):
            yield from (f"/{path.relative_to(system.root)}" for path in system.glob(absolute))
        else:
            yield absolute
