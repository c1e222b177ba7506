"""What the agent does at each step: warm up, time without a profiler, look for synchronising calls, trace, be done."""

from __future__ import annotations

from typing import Optional

WARM_UP, TIMING, SYNC_CALLS, TRACING, DONE = "warm-up", "timing", "sync-calls", "tracing", "done"

TIMED_STEPS = 20
TIMED_S = 10.0
LEAST_TIMED_STEPS = 3
TRACE_WARM_UP_STEPS = 2


class Phases:
    """A clock in steps. `step` is called at the end of each and returns the phase that the next step belongs to.

    The timing window takes 20 steps or 10 s, and never less than 3 steps. All ranks must trace the same steps, or their
    collectives could not be told apart; `agreed` is the step the first rank names for it, None where each counts alone.
    """

    def __init__(self, wait: int, steps: int, margin: int = 1) -> None:
        self.wait = wait
        self.steps = steps
        self.margin = margin
        """Steps between the end of timing and the trace, so that every rank learns of it before it gets there: hosts
        run ahead of their GPUs, and so of one another."""
        self.phase = WARM_UP
        self.timed_from = 0
        self.timed_until = 0
        self._since_s = 0.0
        self._trace_from: Optional[int] = None

    def step(self, count: int, now_s: float, agreed: Optional[int] = None, leads: bool = True) -> str:
        """`count` steps have ended at `now_s`."""
        if self.phase == WARM_UP and count >= self.wait:
            self.phase, self.timed_from, self._since_s = TIMING, count, now_s
        elif self.phase == TIMING:
            self.timed_until = count
            if self._trace_from is None:
                self._trace_from = agreed
                if agreed is None and leads and self._timed(now_s):
                    self._trace_from = count + self.margin
            if self._trace_from is not None and count >= self._trace_from:
                self.phase = SYNC_CALLS
        elif self.phase == SYNC_CALLS:
            self.phase = TRACING
        elif self.phase == TRACING and count >= self.trace_until:
            self.phase = DONE
        return self.phase

    def _timed(self, now_s: float) -> bool:
        count = self.timed_until - self.timed_from
        return count >= TIMED_STEPS or (count >= LEAST_TIMED_STEPS and now_s - self._since_s >= TIMED_S)

    @property
    def trace_from(self) -> Optional[int]:
        """Step count at which the look for synchronising calls begins; the trace begins one step later."""
        return self._trace_from

    @property
    def trace_until(self) -> int:
        """Step count at which the trace is whole."""
        return (self._trace_from or 0) + 1 + TRACE_WARM_UP_STEPS + self.steps
