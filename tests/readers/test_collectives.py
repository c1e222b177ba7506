"""What the watchdog says: which collective did not end, on which ranks, and whether they agree on it."""

import pytest

from gpudoctor.facts.nccl_log import Mismatch, NcclLog, Timeout
from gpudoctor.readers import nccl_log


def _log(text: str) -> NcclLog:
    snapshot = nccl_log.read(text)
    assert snapshot is not None
    assert snapshot.nccl_log is not None
    return snapshot.nccl_log


def _caught(rank: int, call: str, group: str = "[PG ID 0 PG GUID 0(default_pg) Rank {}]") -> str:
    return (
        f"[rank{rank}]:[E1201 10:00:00.1 ProcessGroupNCCL.cpp:632] {group.format(rank)} Watchdog caught collective "
        f"operation timeout: WorkNCCL({call}, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    )


def test_a_timeout_is_read_with_what_later_lines_add() -> None:
    newest = (
        "[rank5]:[E1201 10:00:00.2 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 5] Exception "
        "(either an error or timeout) detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed "
        "NCCL work: 11."
    )
    (found,) = _log(_caught(5, "SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8") + "\n" + newest).timeouts
    assert found == Timeout(
        rank=5,
        group="0(default_pg)",
        sequence=12,
        operation="ALLREDUCE",
        elements_in=8,
        elements_out=8,
        timeout_ms=600000,
        ran_ms=600012,
        last_enqueued=14,
        last_completed=11,
    )


def test_the_line_of_torch_1_is_read_too() -> None:
    (found,) = _log(
        "[E ProcessGroupNCCL.cpp:737] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1806204 milliseconds before timing out."
    ).timeouts
    assert (found.rank, found.operation, found.sequence, found.timeout_ms) == (0, "BROADCAST", None, 1800000)


def test_another_ranks_timeout_stands_where_nobody_tells_of_its_own() -> None:
    line = (
        "[rank2]:[E ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0 Rank 2] Received a dump signal due to a collective "
        "timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 5, last "
        "completed NCCL work: 5."
    )
    assert _log(line).timeouts == (Timeout(rank=7),)


def test_gloo_and_monitored_barriers_are_read() -> None:
    gloo = (
        "[rank1]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation "
    )
    (found,) = _log(gloo + "to complete").timeouts
    assert (found.rank, found.operation, found.timeout_ms) == (1, "recv", 3000)
    log = _log("[rank0]: RuntimeError: Ranks 1, 3 failed to pass monitoredBarrier in 2000 ms")
    assert log.late_ranks == (1, 3)


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ("OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "OpType=ALLREDUCE, NumelIn=8, NumelOut=8", False),
        ("OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "OpType=ALLREDUCE, NumelIn=9, NumelOut=9", True),
        ("OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "OpType=BROADCAST, NumelIn=8, NumelOut=8", True),
        ("OpType=ALLTOALL, NumelIn=8, NumelOut=6", "OpType=ALLTOALL, NumelIn=6, NumelOut=8", False),
        ("OpType=SEND, NumelIn=8, NumelOut=8", "OpType=RECV, NumelIn=8, NumelOut=8", False),
    ],
)
def test_ranks_in_different_collectives_under_one_number_do_not_agree(first: str, second: str, differ: bool) -> None:
    log = _log("\n".join(_caught(rank, f"SeqNum=7, {call}") for rank, call in enumerate((first, second))))
    assert [item.ranks for item in log.mismatches] == ([(0, 1)] if differ else [])


def test_numbers_of_different_groups_are_not_compared() -> None:
    calls = ("SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "SeqNum=7, OpType=BROADCAST, NumelIn=1, NumelOut=1")
    lines = [_caught(rank, call, f"[PG ID {rank} PG GUID {rank} Rank {{}}]") for rank, call in enumerate(calls)]
    assert _log("\n".join(lines)).mismatches == ()


def test_without_names_of_groups_a_rank_in_two_collectives_shows_that_there_are_several() -> None:
    one, other = "OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "OpType=BROADCAST, NumelIn=1, NumelOut=1"
    alone = [_caught(0, f"SeqNum=7, {one}", "[Rank {}]"), _caught(1, f"SeqNum=7, {other}", "[Rank {}]")]
    assert [item.certain for item in _log("\n".join(alone)).mismatches] == [False]
    assert _log("\n".join([*alone, _caught(0, f"SeqNum=9, {other}", "[Rank {}]")])).mismatches == ()


def test_fingerprints_that_differ_are_a_mismatch() -> None:
    fingerprint = "CollectiveFingerPrint(SequenceNumber={0}, OpType={1}, TensorShape=[{2}], TensorDtypes=Float, Tensor)"
    line = (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        f"{fingerprint.format(4, 'ALLREDUCE', 25)}, but Rank 0 is running collective: "
        f"{fingerprint.format(4, 'BROADCAST', 1)}.Collectives differ in the following aspects: Op type"
    )
    assert _log(line).mismatches == (Mismatch(seen="rank 1 in ALLREDUCE [25], rank 0 in BROADCAST [1]", ranks=(1, 0)),)
