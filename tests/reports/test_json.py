"""The report for machines, and its schema."""

import json
from pathlib import Path

import jsonschema
import msgspec

from gpudoctor.reports import json as report
from gpudoctor.reports.document import Document
from gpudoctor.snapshot import Snapshot

KEYS = {"schema", "tool", "command", "host", "verdict", "findings", "not_read", "ignored", "snapshot", "run"}


def test_documents_are_valid_by_their_schema(well: Document, ill: Document, laptop: Document) -> None:
    schema = report.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for document in (well, ill, laptop):
        jsonschema.validate(json.loads(report.render(document)), schema)


def test_the_schema_refuses_another_verdict(well: Document) -> None:
    told = json.loads(report.render(well))
    told["verdict"] = "fine"
    validator = jsonschema.Draft202012Validator(report.schema())
    assert [list(error.path) for error in validator.iter_errors(told)] == [["verdict"]]


def test_the_keys_are_those_of_the_contract(ill: Document) -> None:
    told = json.loads(report.render(ill))
    assert set(told) == KEYS | {"notes"}
    assert told["schema"] == 1
    assert told["host"] == "node1"
    assert told["tool"] == {"name": "gpudoctor", "version": "0.1.0"}
    assert told["run"] is None
    assert told["not_read"][0] == {"subject": "topology.acs_bridges", "reason": "needs root"}
    assert told["ignored"][0] == {
        "code": "GPU020",
        "name": "persistence-off",
        "where": "GPU 0",
        "reason": "known",
        "expires": "2027-01-31",
    }
    assert told["findings"][0] == {
        "code": "SHM001",
        "name": "shm-too-small",
        "severity": "error",
        "confidence": "certain",
        "where": "/dev/shm",
        "evidence": [{"what": "size", "seen": "64 MiB", "wanted": "8 GiB or more", "source": "1 GiB a GPU"}],
        "why": "loader workers hand over batches through /dev/shm and die with a bus error when it is full",
        "fix": [
            {
                "text": "start the container with a larger one",
                "command": "docker run --shm-size=16g --rm -it image",
                "safety": "restarts",
            },
            {"text": "or use the host's", "command": None, "safety": "safe"},
        ],
        "cost": None,
        "consequences": ["ERR003", "SHM004"],
    }


def test_the_snapshot_inside_can_be_read_again(ill: Document) -> None:
    told = json.loads(report.render(ill))
    assert Snapshot.from_json(json.dumps(told["snapshot"])) == ill.snapshot
    assert msgspec.json.decode(report.render(ill), type=Document) == ill


def test_the_schema_ships_beside_the_code() -> None:
    file = Path(report.__file__).with_name("report.schema.json")
    assert json.loads(file.read_text(encoding="utf-8"))["$schema"] == report.schema()["$schema"]
