"""Where one training step ends and the next begins, told from what the job calls. Knows neither torch nor time."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Optional

FETCHES_WITHOUT_OPTIMIZER = 8
"""Batches fetched, or backward passes, before they are taken for steps where there is no optimizer."""

FETCHES_BEFORE_OPTIMIZER = 256
"""The same where there is one that has not stepped yet: it gathers gradients first, or the job begins by evaluating."""

STEPS_WITHOUT_LEADER = 3
"""Steps of other optimizers before one of them takes over from a leader that has stopped."""


class Steps:
    """Feed it fetches and optimizer steps; each call returns True where a step has just ended.

    The leader is the optimizer that stepped first: jobs with several (GANs) step each of them once or more a step. Its
    step arms the boundary, and the next fetch closes it, so that logging and checkpoints after `optimizer.step()`
    belong to the step they follow. A job without loader closes at the leader's next step instead. A job without
    optimizer counts the loader's iterations, one without either its backward passes.
    """

    def __init__(self) -> None:
        self.loop: Optional[str] = None
        """`optimizer`, `deepspeed`, `loader` or `backward`: how steps are recognised; None before the first is."""
        self.count = 0
        """Steps ended."""
        self.fetches = 0
        self.fetches_by_step: Dict[int, int] = Counter()
        """How many steps took how many fetches: gradient accumulation shows, and evaluation does not outvote it."""
        self.optimizer_steps: Dict[int, int] = Counter()
        """By optimizer, over the run."""
        self.backwards = 0
        """Backward passes before an optimizer or a loader was seen."""
        self.patience = FETCHES_WITHOUT_OPTIMIZER
        self._leader: Optional[int] = None
        self._armed = False
        self._since_leader = 0
        self._fetches_of_step = 0

    def optimizer_made(self) -> None:
        """It may well step."""
        self.patience = FETCHES_BEFORE_OPTIMIZER

    def backward(self) -> bool:
        """A backward pass is about to run."""
        if self._leader is not None or self.fetches:
            return False
        self.backwards += 1
        if self.backwards <= self.patience:
            return False
        self.loop = "backward"
        return self._end()

    @property
    def guessed(self) -> bool:
        """No optimizer has stepped, and what was counted may have been something else."""
        return self.loop is not None and self._leader is None

    def fetch(self) -> bool:
        """A batch is about to be fetched by the thread that trains."""
        self.fetches += 1
        ended = self._armed
        if self._leader is None and self.fetches > self.patience:
            self.loop = "loader"
            ended = True
        if ended:
            self._armed = False
            self._end()
        self._fetches_of_step += 1
        return ended

    def optimizer_step(self, optimizer: int, kind: str = "optimizer") -> bool:
        """An optimizer (by its id) has stepped, or a GradScaler has passed over its step."""
        self.optimizer_steps[optimizer] += 1
        if self._leader is None or (optimizer != self._leader and self._since_leader >= STEPS_WITHOUT_LEADER):
            self._leader = optimizer
            self.loop = kind
        if optimizer != self._leader:
            self._since_leader += 1
            return False
        self._since_leader = 0
        ended = self._armed and self._end()
        self._armed = True
        return ended

    def _end(self) -> bool:
        self.count += 1
        self.fetches_by_step[self._fetches_of_step] += 1
        self._fetches_of_step = 0
        return True

    @property
    def accumulation(self) -> Optional[int]:
        """Batches fetched in one step, as most steps do; None before the first."""
        return max(self.fetches_by_step, key=self.fetches_by_step.__getitem__, default=None)
