"""The base of every fact."""

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen record. A field left at its default is left out of the JSON, which keeps a snapshot small."""


class Subject(Fact, frozen=True, kw_only=True):
    """A fact that stands in the snapshot under its own name."""

    unread: dict[str, str] = {}
    """Parts of the subject that could not be read, with the reason: `{"acs_bridges": "needs root"}`."""
