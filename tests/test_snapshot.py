"""A snapshot goes to JSON and comes back the same."""

import msgspec
import pytest

from gpudoctor.facts.environment import Environment
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Topology
from gpudoctor.facts.torch import TorchRuntime
from gpudoctor.snapshot import DEEP_SUBJECTS, SCHEMA, SUBJECTS, TEXT_SUBJECTS, Snapshot, SnapshotError


def test_a_snapshot_comes_back_the_same(healthy: Snapshot) -> None:
    assert Snapshot.from_json(healthy.to_json()) == healthy


def test_the_healthy_machine_has_every_subject_a_default_check_reads(healthy: Snapshot) -> None:
    assert [name for name in SUBJECTS if getattr(healthy, name) is None] == sorted(
        TEXT_SUBJECTS | DEEP_SUBJECTS, key=SUBJECTS.index
    )


def test_a_newer_schema_is_refused_with_both_numbers() -> None:
    newer = msgspec.json.encode({"schema": SCHEMA + 1})
    with pytest.raises(SnapshotError, match=f"schema {SCHEMA + 1} is newer than the {SCHEMA}"):
        Snapshot.from_json(newer)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"gpus": 3}', b"\xff"])
def test_what_is_no_snapshot_is_refused(text: bytes) -> None:
    with pytest.raises(SnapshotError):
        Snapshot.from_json(text)


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert Snapshot.from_json(b'{"schema": 1, "a_subject_to_come": {}}') == Snapshot()


def test_not_read_lists_whole_subjects_and_parts_of_read_ones() -> None:
    machine = Snapshot(topology=Topology(unread={"acs_bridges": "needs root"}), unread={"gpus": "no driver"})
    assert machine.not_read() == {"gpus": "no driver", "topology.acs_bridges": "needs root"}


def _boards(count: int) -> Gpus:
    return Gpus(boards=tuple(Gpu(index=index) for index in range(count)))


def test_torch_s_count_of_gpus_wins_over_nvml_s() -> None:
    assert Snapshot(torch_runtime=TorchRuntime(device_count=3), gpus=_boards(8)).gpu_count() == 3


@pytest.mark.parametrize(("visible", "count"), [(None, 8), ("0,1", 2), ("", 0), ("0,", 1)])
def test_nvml_s_boards_are_counted_as_far_as_they_are_visible(visible: str | None, count: int) -> None:
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert Snapshot(gpus=_boards(8), environment=Environment(variables=variables)).gpu_count() == count


def test_the_count_of_gpus_is_unknown_where_nothing_was_read() -> None:
    assert Snapshot().gpu_count() is None
