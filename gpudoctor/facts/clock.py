"""The clock, which several nodes must share."""

from gpudoctor.facts.base import Subject


class Clock(Subject, frozen=True, kw_only=True):
    """From adjtimex."""

    synchronised: bool | None = None
    max_error_s: float | None = None
    """The kernel's own bound on its error."""
