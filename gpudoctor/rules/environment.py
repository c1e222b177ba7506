"""Rules on environment."""

from gpudoctor.findings import Rule
from gpudoctor.snapshot import Snapshot

RULES: tuple[Rule[Snapshot], ...] = ()
