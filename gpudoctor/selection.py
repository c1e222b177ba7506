"""From the words users give for rules (a code, a name, an area) to the rules, with the nearest word for a slip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpudoctor.errors import UsageError
from gpudoctor.findings import Rule
from gpudoctor.rules import AREAS, MACHINE_RULES
from gpudoctor.snapshot import Snapshot


class UnknownWord(UsageError):
    """No rule has this code or name, and no area. The message names the nearest."""


def find(word: str) -> Rule[Any]:
    """The rule of a code or a name, in either case. Raises UnknownWord."""
    for rule in _all():
        if word.strip().upper() == rule.code or _as_name(word) == rule.name:
            return rule
    raise UnknownWord(f"no rule is called {word.strip()!r}{_hint(word, areas=False)}")


def select(words: Iterable[str]) -> tuple[Rule[Snapshot], ...]:
    """The rules on machines of codes, names and areas, in report order; all for no word. Words may be joined by commas.

    Raises UnknownWord.
    """
    parts = [part.strip() for word in words for part in word.split(",") if part.strip()]
    if not parts:
        return MACHINE_RULES
    codes: set[str] = set()
    for part in parts:
        if part.upper() in AREAS:
            named = {rule.code for rule in _all() if rule.area == part.upper()}
        else:
            try:
                named = {find(part).code}
            except UnknownWord:
                raise UnknownWord(f"no rule or area is called {part!r}{_hint(part, areas=True)}") from None
        if not named & {rule.code for rule in MACHINE_RULES}:
            raise UnknownWord(f"{part} judges a job, not a machine: `gpudoctor profile`")
        codes |= named
    return tuple(rule for rule in MACHINE_RULES if rule.code in codes)


def _all() -> tuple[Rule[Any], ...]:
    from gpudoctor.rules.every import ALL_RULES  # here: a check that looks up no word needs no rules on jobs

    return ALL_RULES


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like it; None where none comes close."""
    from difflib import get_close_matches  # here: only a slip needs it

    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def _as_name(word: str) -> str:
    return word.strip().lower().replace("_", "-")


def _hint(word: str, *, areas: bool) -> str:
    codes = [rule.code for rule in _all()] + (list(AREAS) if areas else [])
    close = nearest(word.strip().upper(), codes) or nearest(_as_name(word), (rule.name for rule in _all()))
    return f"; the nearest is {close}" if close else "; `gpudoctor rules` lists them"
