"""Take out of a report what names a person, a machine or a secret, keeping what was equal equal.

Pure: a value in, the same value with stand-ins out (`host1`, `user1`, `GPU-00010001-…`, `192.0.2.1`, `[secret]`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gpudoctor.snapshot import Snapshot

T = TypeVar("T")

SECRET = "[secret]"  # noqa: S105 - what stands in for one

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|PRIVATE|CREDENTIAL|AUTH|COOKIE|SIGNATURE|JWT|_KEY$|_DSN$", re.IGNORECASE
)
_HOST_NAME = re.compile(r"^MASTER_ADDR$|_HOST(NAME)?$|^HOSTNAME$|NODENAME$|_NODELIST$|_ENDPOINT$|^PET_RDZV_ENDPOINT$")
_HOST = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][\w.-]*(?:\[[\d,-]+\])?")
"""One name, or a list as Slurm writes it: `node[1-4]`."""
_USER_NAME = re.compile(r"^(USER|LOGNAME|USERNAME|SUDO_USER)$|_USER$|_ACCOUNT$")
_HOME = re.compile(r"(?<=/home/)[^/\s:'\"]+|(?<=/Users/)[^/\s:'\"]+|(?<=\\Users\\)[^\\\s:'\"]+")
_UUID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-zA-Z])", re.IGNORECASE)
_PART_OF_UUID = re.compile(r"(?:(?<=GPU-)|(?<=MIG-))[0-9a-f-]{4,35}(?![0-9a-zA-Z-])")
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:])", re.IGNORECASE)
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
_GUID = re.compile(r"(?<![\w:])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_ASSIGNED = re.compile(
    r"((?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credentials?|authorization)[\"']?(?:\s*[=:]\s*|\s+(?=\S*\d\S{7})))"
    r"(?:bearer\s+)?[^\s&\"',;]+",
    re.IGNORECASE,
)
_KNOWN_SHAPE = re.compile(
    r"\b(?:hf_|ghp_|gho_|ghs_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|AIza|nvapi-|wandb_)[\w-]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)
_HEX = re.compile(r"(?<![A-Za-z0-9])(?:[0-9a-f]{32,}|[0-9A-F]{32,})(?![A-Za-z0-9])")
_LONG = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/=_-]{32,}(?![\w+/=.-])")

_NO_NAMES = frozenset({"", "root", "nobody", "localhost", "localhost.localdomain", "none", "unknown"})
"""Of users and hosts: these name nobody."""
_ALSO_WORDS = frozenset({"cuda", "cpu", "rocm", "mps", "torch", "nvidia", "data", "user", "users", "home", "host"})
"""As a user's name hidden in home folders alone: elsewhere it is a word that reports and settings need."""
_ADDRESSES = re.compile(r"\.(network|environment|disks|exposure|kernel_log|errors|nccl_log|unread)\b")
"""Subjects of a machine in which addresses stand. Elsewhere four numbers with dots are a version (cuDNN 9.19.0.56)."""
_VERSIONS = re.compile(r"version|compiled|loaded|requires|cuda|release|wheels|files|installed|tags")
"""Fields in which four numbers with dots are no address."""


def redacted(value: T, machine: Snapshot, users: Iterable[str] = ()) -> T:
    """`value` (the snapshot itself, or a report on it) without names and secrets of `machine`.

    `users` are further names to hide: of those who run this.
    """
    tree = msgspec.to_builtins(value)
    # Ranks of a job may have run on other hosts than the one whose snapshot this is.
    hosts = sorted({text for path, text in _strings(tree) if path.rpartition(".")[2] == "host"})
    stand_ins = _StandIns(machine, users, hosts)
    return msgspec.convert(_walk(tree, stand_ins), type(value))


def _walk(tree: Any, stand_ins: _StandIns, key: str = "") -> Any:
    if isinstance(tree, str):
        return SECRET if _SECRET_NAME.search(key) and key.isupper() and tree else stand_ins.hide(tree)
    if isinstance(tree, dict):
        return {name: _walk(item, stand_ins, name) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        if not {str, dict, list, tuple}.intersection(map(type, tree)):
            return tree  # A job's columns of numbers are long.
        return [_walk(item, stand_ins, key) for item in tree]
    return tree


class _StandIns:
    """The n-th of its kind gets the n-th stand-in, wherever it stands."""

    def __init__(self, machine: Snapshot, users: Iterable[str], hosts: Iterable[str] = ()) -> None:
        strings = list(_strings(msgspec.to_builtins(machine)))
        self._names: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._others: dict[str, str] = {}
        self._learn_hosts(machine, strings, hosts)
        self._learn_users(strings, users)
        for board in machine.gpus.boards if machine.gpus else ():
            if board.serial:
                self._names.setdefault(board.serial, f"serial{board.index + 1}")
        for _, text in strings:
            for found in _UUID.findall(text):
                self._uuid(found)
        for path, text in strings:
            if _ADDRESSES.match(path) and not _VERSIONS.search(path):
                for found in (*_IPV4.findall(text), *_IPV6.findall(text)):
                    self._address(found)
        # The longest first: node1.example.org before node1.
        words = sorted((*self._names, *self._addresses), key=len, reverse=True)
        self._words = re.compile(
            r"(?<![A-Za-z0-9_])(?:" + "|".join(map(re.escape, words)) + r")(?![A-Za-z0-9_])" if words else r"(?!)"
        )

    def hide(self, text: str) -> str:
        """The text with everything known by shape or by name replaced."""
        text = _IN_URL.sub(SECRET, text)
        text = _ASSIGNED.sub(lambda found: found.group(1) + SECRET, text)
        text = _KNOWN_SHAPE.sub(SECRET, text)
        text = _MAIL.sub("[mail]", text)
        text = _UUID.sub(lambda found: self._uuid(found.group()), text)
        text = _PART_OF_UUID.sub(lambda found: self._part_of_uuid(found.group()), text)
        text = _MAC.sub(lambda found: self._numbered(found.group(), "02:00:00:00:00:{:02x}"), text)
        text = _GUID.sub(lambda found: self._numbered(found.group(), "0000:0000:0000:{:04x}"), text)
        text = _HOME.sub(lambda found: self._home(found.group()), text)
        text = self._words.sub(lambda found: self._names.get(found.group()) or self._addresses[found.group()], text)
        text = _HEX.sub(SECRET, text)
        return _LONG.sub(lambda found: SECRET if _looks_random(found.group()) else found.group(), text)

    def _learn_hosts(self, machine: Snapshot, strings: list[tuple[str, str]], others: Iterable[str]) -> None:
        hosts: list[str | None] = [machine.host.name if machine.host else None, *others]
        if machine.network is not None:
            hosts += [machine.network.host_name, machine.network.master_addr]
        for path, text in strings:
            name = path.rpartition(".")[2]
            if name.isupper() and _HOST_NAME.search(name):
                hosts += [text.rsplit(":", 1)[0], *text.split(",")]
            if name in {"device", "mount_point"} and (server := re.match(r"([A-Za-z][\w.-]+):/", text)):
                hosts.append(server.group(1))
        for host in hosts:
            if not host or not _HOST.fullmatch(host) or host in _NO_NAMES | _ALSO_WORDS or _is_address(host):
                continue
            short = host.partition(".")[0]
            stand_in = self._names.get(short) or f"host{len(set(self._names.values())) + 1}"
            self._names.setdefault(host, stand_in)
            self._names.setdefault(short, stand_in)

    def _learn_users(self, strings: list[tuple[str, str]], users: Iterable[str]) -> None:
        found: list[str] = []
        for path, text in strings:
            found += _HOME.findall(text)
            name = path.rpartition(".")[2]
            if name.isupper() and _USER_NAME.search(name):
                found.append(text)
        for user in (*found, *users):
            stand_in = self._home(user)
            if user not in _NO_NAMES | _ALSO_WORDS:
                self._names.setdefault(user, stand_in)

    def _home(self, user: str) -> str:
        return user if user in _NO_NAMES else self._homes.setdefault(user, f"user{len(self._homes) + 1}")

    def _uuid(self, uuid: str) -> str:
        # Told apart by its first digits, since CUDA_VISIBLE_DEVICES takes abbreviations.
        four = f"{len(self._uuids) + 1:04x}"
        return self._uuids.setdefault(uuid.lower(), f"{four * 2}-{four}-{four}-{four}-{four * 3}")

    def _part_of_uuid(self, part: str) -> str:
        if part in self._uuids.values():
            return part
        whole = next((stand_in for uuid, stand_in in self._uuids.items() if uuid.startswith(part.lower())), None)
        return whole[: len(part)] if whole else self._numbered(part, "{:04x}")

    def _address(self, text: str) -> None:
        if not _is_address(text):
            return
        address = ipaddress.ip_address(text)
        if address.is_loopback or address.is_unspecified or text == "255.255.255.255":
            return
        count = 1 + sum((":" in known) == (":" in text) for known in self._addresses)
        # Documentation ranges: RFC 5737 and RFC 3849.
        self._addresses.setdefault(text, f"2001:db8::{count:x}" if ":" in text else f"192.0.2.{count}")

    def _numbered(self, text: str, form: str) -> str:
        return self._others.setdefault(text.lower(), form.format(len(self._others) + 1))


def _strings(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string with the path of its field."""
    if isinstance(tree, str):
        yield path, tree
    elif isinstance(tree, dict):
        for name, item in tree.items():
            yield from _strings(item, f"{path}.{name}")
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _strings(item, path)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _looks_random(text: str) -> bool:
    """A key or token, and no path, version, symbol or option."""
    if text.startswith(("/", "_Z", "--")) or text.count("/") > 3 or re.search(r"[a-z]{7}", text):
        return False
    kinds: tuple[Callable[[str], bool], ...] = (str.isupper, str.islower, str.isdigit)
    fewest = min(sum(map(kind, text)) for kind in kinds)
    return fewest >= (1 if len(text) == 40 else 3)  # Amazon's secret keys have 40 letters and may have one digit.
