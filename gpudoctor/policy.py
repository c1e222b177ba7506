"""The user's policy: what is expected of a machine, what must be read, what is ignored and until when."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gpudoctor.errors import UsageError
from gpudoctor.facts.expected import Expected
from gpudoctor.findings import Severity
from gpudoctor.selection import UnknownWord, find, nearest
from gpudoctor.snapshot import SUBJECTS, TEXT_SUBJECTS

Count = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class PolicyError(UsageError):
    """The policy cannot be used. The message is one line that names the file and the key."""


class Ignore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Findings of one rule that shall not count."""

    code: Text | None = None
    """Of the rule; it or `name` must be given."""
    name: Text | None = None
    reason: Text
    """Shown in every report."""
    where: Text | None = None
    """Only there, such as `GPU 3`; everywhere where it is not given."""
    expires: date | None = None
    """Last day it holds; for ever where it is not given."""


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the machine should be."""

    device: Literal["cuda", "cpu", "rocm", "mps"] | None = None
    gpus: Count | None = None
    gpu: Text | None = None
    """Part of the board's name, such as `H100`."""
    nodes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    precision: Literal["bf16", "fp16", "tf32", "fp32"] | None = None
    shm: Text | None = None
    """Size of /dev/shm, such as `16GiB`."""
    workers: Count | None = None
    """Loader workers a rank."""

    def facts(self) -> Expected:
        """As the rules read it. Raises ValueError where a size is none."""
        return Expected(
            device=self.device,
            gpus=self.gpus,
            gpu=self.gpu,
            nodes=self.nodes,
            precision=self.precision,
            shm_bytes=None if self.shm is None else size_bytes(self.shm),
            workers=self.workers,
        )


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The default asks for nothing and ignores nothing."""

    required: tuple[str, ...] = ()
    """Subjects without which the machine counts as not checked."""
    expect: Expect = Expect()
    ignore: tuple[Ignore, ...] = ()
    severity: dict[str, Severity] = {}
    """Code or name → the severity it has here."""


def load(path: Path) -> Policy:
    """From gpudoctor.toml, or from `[tool.gpudoctor]` of a pyproject.toml. Raises PolicyError."""
    try:
        tables = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: {error}") from error
    if path.name == "pyproject.toml":
        tool = tables.get("tool")
        tables = tool.get("gpudoctor") if isinstance(tool, dict) else None
        if not isinstance(tables, dict):
            raise PolicyError(f"{path}: it has no table [tool.gpudoctor]")
    try:
        _check_keys(tables)
        policy = msgspec.convert(tables, Policy)
        _check_values(policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{path}: {_plain(str(error))}") from error
    except (PolicyError, UnknownWord) as error:
        raise PolicyError(f"{path}: {error}") from error
    return policy


def size_bytes(text: str) -> int:
    """`16GiB`, `500 MB`, `1g` (as Docker writes it: binary) or plain bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?b)?|b)?", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no size such as 16GiB")
    number, prefix, suffix = match.groups()
    base = 1000 if suffix == "b" else 1024
    return int(float(number) * base ** (" kmgt".index(prefix) if prefix else 0))


def _check_keys(tables: dict[str, Any]) -> None:
    """An unknown key is a slip: name the nearest one."""
    _known(tables, Policy, "")
    if isinstance(expect := tables.get("expect"), dict):
        _known(expect, Expect, "expect.")
    if isinstance(ignores := tables.get("ignore"), list):
        for ignore in ignores:
            if isinstance(ignore, dict):
                _known(ignore, Ignore, "ignore.")


def _known(keys: Iterable[str], struct: type[msgspec.Struct], prefix: str) -> None:
    known = struct.__struct_fields__
    for key in keys:
        if key not in known:
            close = nearest(key, known)
            hint = f"the nearest is {prefix}{close}" if close else f"known are {', '.join(known)}"
            raise PolicyError(f"unknown key {prefix}{key}; {hint}")


def _check_values(policy: Policy) -> None:
    for subject in policy.required:
        known = [name for name in SUBJECTS if name not in TEXT_SUBJECTS]  # no machine answers these
        if subject not in known:
            close = nearest(subject, known)
            hint = f"the nearest is {close}" if close else f"known are {', '.join(known)}"
            raise PolicyError(f"required: no subject is called {subject!r}; {hint}")
    for ignore in policy.ignore:
        if (ignore.code is None) == (ignore.name is None):
            raise PolicyError("ignore: give either code or name")
        find(ignore.code or ignore.name or "")
    for word in policy.severity:
        find(word)
    try:
        policy.expect.facts()
    except ValueError as error:
        raise PolicyError(f"expect.shm: {error}") from error


def _plain(message: str) -> str:
    """From `Expected `int`, got `str` - at `$.expect.gpus`` to `expect.gpus: expected int, got str`."""
    what, _, where = message.replace(" | null", "").replace("`", "").partition(" - at $")
    what = what[:1].lower() + what[1:]
    return f"{where.lstrip('.')}: {what}" if where else what
