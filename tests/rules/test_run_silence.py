"""No rule on a job speaks where nothing is wrong, or where nothing is known."""

import msgspec
import pytest

from gpudoctor.facts.job import Job
from gpudoctor.facts.run import Rank
from gpudoctor.findings import Rule
from gpudoctor.rules.every import RUN_RULES
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot

every_rule = pytest.mark.parametrize("asked", RUN_RULES, ids=lambda asked: asked.code)


def _fields(kind: type[msgspec.Struct], *kept: str) -> list[tuple[str, object]]:
    """Fields that may be missing, with what they are then."""
    return [
        (field.name, msgspec.convert({"rank": 0} if kind is Rank else {}, kind).__getattribute__(field.name))
        for field in msgspec.structs.fields(kind)
        if field.name not in kept
    ]


@every_rule
def test_rules_are_quiet_on_a_healthy_run(asked: Rule[Run], healthy_run: Run) -> None:
    assert list(asked.judge(healthy_run)) == []


@every_rule
def test_rules_are_quiet_where_nothing_was_run(asked: Rule[Run]) -> None:
    assert list(asked.judge(Run())) == []


@every_rule
def test_rules_are_quiet_on_a_healthy_run_of_an_unknown_machine(asked: Rule[Run], healthy_run: Run) -> None:
    assert list(asked.judge(msgspec.structs.replace(healthy_run, machine=Snapshot()))) == []


@every_rule
@pytest.mark.parametrize(
    ("name", "empty"), _fields(Run, "ranks"), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_missing_field_of_the_run_makes_no_rule_speak(
    asked: Rule[Run], name: str, empty: object, healthy_run: Run
) -> None:
    assert list(asked.judge(msgspec.structs.replace(healthy_run, **{name: empty}))) == []


@every_rule
def test_a_missing_field_of_every_rank_makes_no_rule_speak(asked: Rule[Run], healthy_run: Run) -> None:
    for name, empty in _fields(Rank, "rank", "shares", "steps"):
        ranks = tuple(msgspec.structs.replace(rank, **{name: empty}) for rank in healthy_run.ranks)
        assert list(asked.judge(msgspec.structs.replace(healthy_run, ranks=ranks))) == [], name


@every_rule
def test_a_missing_field_of_the_agents_record_makes_no_rule_speak(asked: Rule[Run], healthy_run: Run) -> None:
    for name, empty in _fields(Job):
        ranks = tuple(
            msgspec.structs.replace(rank, job=msgspec.structs.replace(rank.job, **{name: empty}))
            for rank in healthy_run.ranks
            if rank.job
        )
        assert list(asked.judge(msgspec.structs.replace(healthy_run, ranks=ranks))) == [], name


@every_rule
def test_only_the_missing_measurement_is_told_where_ranks_have_no_trace(asked: Rule[Run], healthy_run: Run) -> None:
    ranks = tuple(Rank(rank=rank.rank) for rank in healthy_run.ranks)
    spoken = list(asked.judge(msgspec.structs.replace(healthy_run, ranks=ranks, shares=None, steps=None)))
    assert bool(spoken) == (asked.code == "RUN001")


@every_rule
def test_rules_are_quiet_on_a_healthy_job_of_one_cpu_process(asked: Rule[Run], healthy_run: Run) -> None:
    """Without a GPU: operators are the work, and nothing on GPUs is said."""
    rank = msgspec.structs.replace(
        healthy_run.ranks[0],
        device="cpu",
        device_index=None,
        compute_capability=None,
        world_size=1,
        backend=None,
        launches=None,
        allocations=None,
        copies=(),
        syncs=(),
        collectives=(),
        forwards=None,
        job=Job(steps_seen=40, timed_steps=20, timed_step_ms=99.0),
    )
    alone = Run(world_size=1, ranks=(rank,), steps=4, step_ms=100.0, shares=rank.shares, exit_code=0)
    assert list(asked.judge(alone)) == []
