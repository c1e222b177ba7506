"""Which ranks lose how much of a step to one thing, and how long the step would be without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpudoctor.facts.run import Rank
from gpudoctor.findings import Confidence, Cost
from gpudoctor.run import Run


def on_gpu(rank: Rank) -> bool:
    """Its trace has a device in it."""
    return rank.device != "cpu" and rank.launches is not None


def on_gpus(run: Run) -> tuple[Rank, ...]:
    """Ranks whose traces have a device in them."""
    return tuple(rank for rank in run.ranks if on_gpu(rank))


def per_step_ms(rank: Rank, duration_ns: float) -> float:
    """Milliseconds a step of a duration of the window; of the whole window where no steps were marked."""
    return duration_ns / 1e6 / (rank.steps or 1)


def share_of_window(rank: Rank, duration_ns: float) -> float | None:
    """Share of the step, 0 to 1; None where the window is not known."""
    if rank.window_ns is None or rank.window_ns[1] <= rank.window_ns[0]:
        return None
    return min(1.0, duration_ns / (rank.window_ns[1] - rank.window_ns[0]))


def cpu_wait_share(rank: Rank) -> float:
    """Share of the traced steps in which other processes had the CPU that the training thread was ready for.

    It lies anywhere in the step. What a rule blames on the host must be more than that; 0 where it is not known.
    """
    waited, step = rank.job.cpu_wait_ms if rank.job else None, rank.traced_step_ms or rank.step_ms
    return min(1.0, waited / step) if waited and step else 0.0


def cpus_a_rank(run: Run, rank: Rank) -> float | None:
    """CPUs the job may use on this rank's host, divided among the ranks there; None where they were not read."""
    usable = run.machine.cpu.usable if run.machine.cpu else None
    return None if usable is None else usable / ranks_on_its_host(run, rank)


def ranks_on_its_host(run: Run, rank: Rank) -> int:
    """All ranks where no host is known."""
    return max(1, sum(other.host == rank.host for other in run.ranks))


def named(ranks: Iterable[Rank], of: int) -> str:
    """`rank 3`, `ranks 1, 3`, `37 of 64 ranks`; empty where it is all of them."""
    numbers = [rank.rank for rank in ranks]
    if len(numbers) >= of:
        return ""
    if len(numbers) > 4:
        return f"{len(numbers)} of {of} ranks"
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


@dataclass(frozen=True)
class Loss:
    """A share of the step that some ranks lose."""

    ranks: tuple[Rank, ...]
    """The ranks concerned, the one that loses most first."""
    share: float
    """Mean over them, 0 to 1."""
    where: str
    """Empty where all ranks are concerned."""

    @property
    def step_ms(self) -> float | None:
        """Mean over these ranks; None where the trace has no step marks."""
        known = [rank.step_ms for rank in self.ranks if rank.step_ms]
        return sum(known) / len(known) if known else None

    @property
    def ms(self) -> float:
        """Lost a step; 0 where the length of a step is not known."""
        return self.share * (self.step_ms or 0.0)

    @property
    def seen(self) -> str:
        """`81 % of the step, 181 of 225 ms`."""
        if self.step_ms is None:
            return f"{self.share:.0%} of the trace"
        return f"{self.share:.0%} of the step, {ms(self.ms)} of {ms(self.step_ms)} ms"

    @property
    def confidence(self) -> Confidence:
        """Without step marks the window may hold the start of the job too."""
        return "certain" if all(rank.steps for rank in self.ranks) else "likely"

    def cost(self, next_bound_ms: float = 0.0) -> Cost | None:
        """None where the length of a step is not known. No step gets shorter than the next bound."""
        now = self.step_ms
        if now is None:
            return None
        return Cost(
            share_of_step=self.share,
            step_ms_now=now,
            step_ms_at_best=min(now, max(now - self.ms, next_bound_ms)),
        )


def lost(ranks: Iterable[Rank], share: Callable[[Rank], float | None], at_least: float) -> Loss | None:
    """The ranks that lose at least this share; None where there is none. `share` gives None where it is not known."""
    known = [(own, rank) for rank in ranks if (own := share(rank)) is not None]
    concerned = sorted(((own, rank) for own, rank in known if own >= at_least), key=lambda pair: -pair[0])
    if not concerned:
        return None
    members = tuple(rank for _, rank in concerned)
    return Loss(members, sum(own for own, _ in concerned) / len(concerned), named(members, len(known)))


def ms(value: float) -> str:
    """Three figures, as people read them: `0.42`, `41.8`, `225`."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
