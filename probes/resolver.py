"""Where a host name leads: by what this machine knows itself, and by its resolver with a deadline."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpudoctor.facts.network import Interface
from gpudoctor.probes.sockets import is_loopback
from gpudoctor.probes.system import NotRead, System

DEADLINE_S = 1.0
# Services of /etc/nsswitch.conf that know no more of a plain host name than /etc/hosts does.
FILES_ONLY = {"files", "compat", "mdns_minimal", "mdns4_minimal", "mdns6_minimal", "notfound", "success", "return"}


class Hosts:
    """Names this machine resolves without asking others: literal addresses, /etc/hosts, its own name."""

    def __init__(self, system: System, host_name: str | None, interfaces: tuple[Interface, ...]) -> None:
        self.host_name = host_name
        self._own = tuple(address for interface in interfaces for address in interface.addresses)
        self._lines = [line.partition("#")[0].split() for line in _lines(system, "/etc/hosts")]
        order = [line.partition(":")[2] for line in _lines(system, "/etc/nsswitch.conf") if line.startswith("hosts:")]
        # The C library's own order where the file names none.
        self._services = set(re.findall(r"\w+", order[0].lower())) if order else {"files", "dns"}

    def lookup(self, name: str) -> tuple[str, ...] | None:
        """None where only others can tell. Empty where nobody can, which is known of the host's own name alone."""
        if _parsed(name) is not None:
            return (name,)
        found = [line[0] for line in self._lines if name.lower() in map(str.lower, line[1:]) and _parsed(line[0])]
        if found:
            return tuple(dict.fromkeys(found))
        if name != self.host_name:
            return None
        outward = tuple(address for address in self._own if _is_outward(address))
        if outward and self._services & {"myhostname", "resolve"}:  # systemd answers with the interfaces
            return outward
        return () if self._services <= FILES_ONLY else None

    def is_here(self, addresses: tuple[str, ...]) -> bool:
        """One of them is this machine's."""
        return any(address in self._own or is_loopback(address) for address in addresses)


def _lines(system: System, path: str) -> list[str]:
    return (system.text_or_none(path) or "").splitlines()


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(address)
    return None


def _is_outward(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and not (parsed.is_loopback or parsed.is_link_local)


Answer = tuple[tuple[str, ...], "str | None"]


def ask(name: str, deadline_s: float = DEADLINE_S, resolve: Callable[..., Any] = socket.getaddrinfo) -> Answer:
    """Addresses of a name; or none, and the resolver's words, where it says that there is no such name.

    Raises NotRead where it says nothing in time, or nothing definite: a name server may be down for a moment.
    """
    answer: list[Answer | NotRead] = []
    # WHY a thread: getaddrinfo cannot be interrupted, and asks each name server for 5 s and more.
    thread = threading.Thread(target=lambda: answer.append(_answer(name, resolve)), daemon=True)
    thread.start()
    thread.join(deadline_s)
    if not answer:
        raise NotRead(f"the resolver gave no answer in {deadline_s:g} s")
    if isinstance(answer[0], NotRead):
        raise answer[0]
    return answer[0]


def _answer(name: str, resolve: Callable[..., Any]) -> Answer | NotRead:
    no_such_name = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
    try:
        found = resolve(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label longer than 63 characters
        return (), str(error)
    except socket.gaierror as error:
        words = str(error.strerror)
        return ((), words) if error.errno in no_such_name else NotRead(words)
    except OSError as error:
        return NotRead(str(error))
    return tuple(dict.fromkeys(str(item[4][0]).partition("%")[0] for item in found)), None
