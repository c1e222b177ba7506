"""Set-up, end and gaps in what is known of a job, in words."""

import msgspec
import pytest

from gpudoctor.facts.job import Job, MemoryUse, ParallelSetup, PrecisionSetup
from gpudoctor.facts.run import Rank
from gpudoctor.reports.job import ending, in_a_line, not_read, setup
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, hung, run_of


def test_a_job_that_ended_well_has_nothing_to_be_said_first() -> None:
    assert ending(Run(exit_code=0)) is None
    assert ending(Run(exit_code=None)) is None


@pytest.mark.parametrize(
    ("code", "text"),
    [(1, "exit code 1"), (137, "exit code 137 (SIGKILL)"), (134, "exit code 134 (SIGABRT)"), (255, "exit code 255")],
)
def test_a_job_that_failed_tells_its_exit_code(code: int, text: str) -> None:
    ended = ending(Run(exit_code=code, error_text="boom\n"))
    assert ended is not None
    assert ended.text == f"the job failed: {text}"
    assert ended.error == "boom"


def test_a_hang_is_told_as_one_whatever_the_exit_code() -> None:
    ended = ending(hung(run_of([ALIKE] * 4, Snapshot())))
    assert ended is not None
    assert ended.text == "the job hung: no step for 60 s"
    assert [where for where, _ in ended.stacks] == ["rank 2", "rank 0, 1, 3"]


def test_what_is_not_known_of_a_run_is_told_with_the_reason() -> None:
    run = Run(
        missing={"rank 3": "no trace of it"},
        unread={"bad.json": "an empty file"},
        ranks=(
            Rank(rank=0, shares=ALIKE, damage="cut off", job=Job(agent_error="KeyError: x")),
            Rank(rank=1, job=Job(profiler_busy=True)),
            Rank(rank=2, job=Job()),
            Rank(rank=4),
        ),
    )
    assert {item.subject: item.reason for item in not_read(run)} == {
        "rank 3": "no trace of it",
        "bad.json": "an empty file",
        "trace of rank 0": "cut off",
        "agent in rank 0": "it switched itself off: KeyError: x",
        "steps of rank 1": "the job runs torch.profiler itself, so no trace was taken",
        "steps of rank 2": "no trace",
        "steps of rank 4": "no whole step in its trace",
    }
    assert not_read(run_of([ALIKE], Snapshot())) == ()


def test_a_job_in_a_line() -> None:
    run = run_of([ALIKE], Snapshot())
    assert in_a_line(run) == "ddp over nccl · bfloat16 autocast · fused AdamW · 2 workers"
    assert in_a_line(Run()) == ""
    assert in_a_line(Run(ranks=(Rank(rank=0, job=Job()),))) == ""


def test_the_set_up_tells_what_was_seen_and_no_more() -> None:
    assert list(setup(Job())) == []
    told = dict(setup(run_of([ALIKE], Snapshot()).ranks[0].job or Job()))
    assert told["parallel"] == "ddp over nccl · 2 buckets, 45 MiB"
    assert told["optimizer"] == "fused AdamW · 148 parameter tensors · state 1 GiB"
    assert told["memory"] == "peak 40 GiB · 44 GiB reserved"
    assert told["waits at"] == "/home/ada/train.py:70 (aten::item) × 2"
    assert told["loader"].endswith("61.0 ms to make a batch · 18.0 ms waited for one · /home/ada/train.py:88")


def test_rare_set_ups_have_words_too() -> None:
    job = Job(
        compiled=True,
        recompiles=2,
        parallel=ParallelSetup(kind="deepspeed", zero_stage=3, static_graph=True, sharding="FULL_SHARD"),
        precision=PrecisionSetup(parameters="float16", scaler=True),
        memory=MemoryUse(retries=1),
    )
    assert dict(setup(job)) == {
        "parallel": "deepspeed · static_graph · ZeRO stage 3 · FULL_SHARD",
        "precision": "parameters float16 · no autocast · GradScaler",
        "compile": "torch.compile · 2 recompiles",
        "memory": "1 allocator retry",
    }
    assert in_a_line(msgspec.structs.replace(Run(), ranks=(Rank(rank=0, job=job),))).endswith("torch.compile")
