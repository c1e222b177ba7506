"""Rules on shared memory."""

import msgspec
import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.shm import Shm, StaleFile
from gpudoctor.findings import Evidence, Severity, diagnose
from gpudoctor.rules.shm import RULES, shm_full, shm_nearly_full, shm_too_small, stale_shm_files
from gpudoctor.snapshot import Snapshot

MIB, GIB = 2**20, 2**30


def _gpus(count: int) -> Gpus:
    return Gpus(boards=tuple(Gpu(index=index) for index in range(count)))


def _fixes(found: Evidence) -> str:
    return " ".join(f"{fix.text} {fix.command}" for fix in found.fix)


# SHM001


def test_shm_too_small_names_the_size_docker_gives() -> None:
    (found,) = shm_too_small.judge(Snapshot(shm=Shm(total_bytes=64 * MIB)))
    assert (found.seen, found.severity) == ("64 MiB", Severity.ERROR)


def test_shm_too_small_warns_below_a_gib_a_gpu() -> None:
    (found,) = shm_too_small.judge(Snapshot(shm=Shm(total_bytes=2 * GIB), gpus=_gpus(4)))
    assert (found.severity, found.wanted) == (Severity.WARNING, "4 GiB for 4 GPUs")


def test_shm_too_small_warns_below_what_the_policy_expects() -> None:
    machine = Snapshot(shm=Shm(total_bytes=8 * GIB), expected=Expected(shm_bytes=16 * GIB))
    (found,) = shm_too_small.judge(machine)
    assert (found.severity, found.wanted, found.source) == (Severity.WARNING, "16 GiB", "the policy")
    assert "16" in _fixes(found)


@pytest.mark.parametrize(
    ("kind", "fix", "other"),
    [
        ("docker", "--shm-size", "remount"),
        ("podman", "--shm-size", "remount"),
        ("kubernetes", "medium: Memory", "--shm-size"),
        ("lxc", "lxc.mount.entry", "--shm-size"),
        ("apptainer", "remount", "--shm-size"),
        (None, "remount", "--shm-size"),
    ],
)
def test_shm_too_small_tells_the_way_out_of_this_container(kind: str | None, fix: str, other: str) -> None:
    (found,) = shm_too_small.judge(Snapshot(shm=Shm(total_bytes=64 * MIB), container=Container(kind=kind)))
    assert fix in _fixes(found)
    assert other not in _fixes(found)


def test_shm_too_small_is_quiet_about_a_small_one_without_gpus() -> None:
    assert list(shm_too_small.judge(Snapshot(shm=Shm(total_bytes=512 * MIB), gpus=_gpus(0)))) == []


def test_shm_too_small_is_quiet_on_macos() -> None:
    assert list(shm_too_small.judge(Snapshot(host=Host(system="Darwin"), shm=Shm(exists=False)))) == []


def test_shm_too_small_is_quiet_when_the_size_is_unknown(healthy: Snapshot) -> None:
    assert list(shm_too_small.judge(msgspec.structs.replace(healthy, shm=Shm(exists=True)))) == []


# SHM002 and SHM005


def test_shm_full_sees_the_last_bytes_go() -> None:
    (found,) = shm_full.judge(Snapshot(shm=Shm(total_bytes=64 * MIB, free_bytes=4096)))
    assert found.seen == "4 KiB of 64 MiB"


def test_shm_full_sees_the_last_file_go() -> None:
    (found,) = shm_full.judge(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=GIB, inodes_free=0)))
    assert found.what == "files that can be added"


def test_shm_full_takes_a_refused_request_for_it() -> None:
    (found,) = shm_full.judge(Snapshot(shm=Shm(refused_bytes=9637888)))
    assert found.seen == "a request for 9.19 MiB failed"


def test_shm_full_points_at_files_that_nobody_uses() -> None:
    (found,) = shm_full.judge(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=0, stale_bytes=900 * MIB)))
    assert "SHM003" in _fixes(found)


def test_shm_full_is_quiet_where_one_per_cent_is_still_room() -> None:
    assert list(shm_full.judge(Snapshot(shm=Shm(total_bytes=1000 * GIB, free_bytes=9 * GIB)))) == []


def test_shm_full_is_quiet_where_the_number_of_files_has_no_limit() -> None:
    assert list(shm_full.judge(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=GIB, inodes_free=None)))) == []


def test_shm_nearly_full_speaks_from_80_per_cent_on() -> None:
    (found,) = shm_nearly_full.judge(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=142 * MIB)))
    assert found.seen == "86% of 1 GiB"
    assert list(shm_nearly_full.judge(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=GIB // 4)))) == []


def test_shm_nearly_full_leaves_a_full_one_to_the_error() -> None:
    findings = diagnose(Snapshot(shm=Shm(total_bytes=GIB, free_bytes=0)), RULES).findings
    assert [finding.code for finding in findings] == ["SHM002"]


def test_shm_nearly_full_is_quiet_when_the_free_space_is_unknown() -> None:
    assert list(shm_nearly_full.judge(Snapshot(shm=Shm(total_bytes=GIB)))) == []


# SHM003


def test_stale_shm_files_counts_them() -> None:
    stale = tuple(StaleFile(name=f"nccl-abcde{index}", size_bytes=4 * MIB) for index in range(5))
    (found,) = stale_shm_files.judge(Snapshot(shm=Shm(stale=stale)))
    assert found.seen == "5 (nccl-abcde0, nccl-abcde1, nccl-abcde2, …), 20 MiB"
    assert found.confidence == "certain"


def test_stale_shm_files_is_less_sure_in_a_container() -> None:
    stale = (StaleFile(name="torch_1_2_3", size_bytes=MIB),)
    (found,) = stale_shm_files.judge(Snapshot(shm=Shm(stale=stale, shared_unseen=True)))
    assert found.confidence == "likely"


def test_stale_shm_files_is_quiet_about_a_semaphore() -> None:
    stale = (StaleFile(name="sem.mp-abcd", size_bytes=4096),)
    assert list(stale_shm_files.judge(Snapshot(shm=Shm(stale=stale)))) == []


def test_stale_shm_files_is_quiet_where_processes_could_not_be_seen() -> None:
    assert list(stale_shm_files.judge(Snapshot(shm=Shm(stale=None, unread={"stale": "needs root"})))) == []
