"""One profiled job: all its ranks, and the machine it ran on."""

from __future__ import annotations

import msgspec

from gpudoctor.facts.base import Fact
from gpudoctor.facts.run import Arrival, Link, Pace, Rank, StepShares
from gpudoctor.facts.watch import Watch
from gpudoctor.snapshot import Snapshot

SCHEMA = 1


class RunError(ValueError):
    """A text is no run of a schema this version reads."""


class Run(Fact, frozen=True, kw_only=True, omit_defaults=False):
    """What the profile rules judge. A field is None where the job did not tell."""

    schema: int = SCHEMA
    started_at: str | None = None
    """UTC, ISO 8601."""
    command: tuple[str, ...] | None = None
    """The job's own command line."""
    world_size: int | None = None
    """Ranks of the job, whether their traces are here or not."""
    ranks: tuple[Rank, ...] = ()
    """In order of rank; those that were seen."""
    missing: dict[str, str] = {}
    """`rank 3` → why nothing is known of it."""
    unread: dict[str, str] = {}
    """Name of a trace → why it is not part of the run."""
    steps: int | None = None
    """Whole steps in the windows, the least over ranks."""
    step_ms: float | None = None
    """Mean length of a step, the mean over ranks."""
    shares: StepShares | None = None
    """Mean over ranks."""
    samples_per_s: float | None = None
    """Over all ranks, where the agent knows the batch."""
    tokens_per_s: float | None = None
    exit_code: int | None = None
    """Of the job, as a shell tells it (128 + N where signal N ended it); None where it was not run by gpudoctor."""
    ended_by_us: bool | None = None
    """gpudoctor ended the job after its window."""
    stalled_s: float | None = None
    """No step for that long when the job was given up; None where it did not stall."""
    stacks: dict[str, str] = {}
    """`rank 0` → stack of its threads, taken where the job stalled."""
    error_text: str | None = None
    """Last lines the job wrote to stderr, where it failed."""
    arrivals: tuple[Arrival, ...] = ()
    """One a rank, where collectives of several ranks could be matched."""
    links: tuple[Link, ...] = ()
    """One for each process group and operation that could be matched."""
    paces: tuple[Pace, ...] = ()
    """One a rank, where at least two ranks have kernels."""
    watch: Watch | None = None
    """What NVML saw of the GPUs meanwhile; None without NVML."""
    machine: Snapshot = Snapshot()
    """The machine it ran on; empty for traces from elsewhere."""

    def to_json(self) -> bytes:
        """One line of JSON that `from_json` takes back unchanged."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Run:
        """Raises RunError where the text is none, or of a newer schema."""
        try:
            run = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise RunError(str(error)) from error
        if run.schema > SCHEMA:
            raise RunError(f"schema {run.schema} is newer than the {SCHEMA} this version reads")
        return run
