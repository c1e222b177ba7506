"""A snapshot or a JSON report, read back."""

import json

import pytest

from gpudoctor.readers.snapshot import read, split
from gpudoctor.snapshot import Snapshot, SnapshotError


def test_a_snapshot_is_read_from_between_other_text(healthy: Snapshot) -> None:
    text = f"here it is:\n```\n{healthy.to_json().decode()}\n```\nthanks"
    found, rest = split(text)
    assert found == healthy
    assert rest == "here it is:\n```\n\n\n```\nthanks"


def test_a_report_gives_its_snapshot(healthy: Snapshot) -> None:
    report = {"schema": 1, "command": "check", "snapshot": json.loads(healthy.to_json())}
    assert read(json.dumps(report, indent=2)) == healthy


def test_a_newer_schema_is_told() -> None:
    with pytest.raises(SnapshotError, match="newer"):
        read('{"schema": 99}')


@pytest.mark.parametrize("text", ['{"schema": 1, "gpus": [', '{"schema": 1' * 50, '{"schema":1,"a":' + "[" * 100_000])
def test_broken_json_is_none(text: str) -> None:
    assert read(text) is None
