"""Rules on shared memory."""

import msgspec

from gpudoctor.facts.shm import Shm
from gpudoctor.rules.shm import shm_too_small
from gpudoctor.snapshot import Snapshot


def test_shm_too_small_names_the_size_docker_gives() -> None:
    (found,) = shm_too_small.judge(Snapshot(shm=Shm(total_bytes=64 * 2**20)))
    assert found.seen == "64 MiB"


def test_shm_too_small_is_quiet_on_a_healthy_machine(healthy: Snapshot) -> None:
    assert list(shm_too_small.judge(healthy)) == []


def test_shm_too_small_is_quiet_when_the_size_is_unknown(healthy: Snapshot) -> None:
    assert list(shm_too_small.judge(msgspec.structs.replace(healthy, shm=Shm(exists=True)))) == []
