"""Policies good and bad."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest

from gpudoctor.facts.expected import Expected
from gpudoctor.findings import Severity
from gpudoctor.policy import Ignore, Policy, PolicyError, load, size_bytes

Load = Callable[..., Policy]

WHOLE = """
required = ["gpus", "torch"]

[expect]
device = "cuda"
gpus = 8
gpu = "H100"
nodes = 2
precision = "bf16"
shm = "16GiB"
workers = 4

[severity]
SHM001 = "info"

[[ignore]]
code = "SHM001"
reason = "one worker is enough here"
expires = 2027-01-31

[[ignore]]
name = "shm-full"
where = "/dev/shm"
reason = "cleared each night"
"""


@pytest.fixture
def policy_of(tmp_path: Path) -> Load:
    """Load a text as gpudoctor.toml."""

    def load_text(text: str, name: str = "gpudoctor.toml") -> Policy:
        file = tmp_path / name
        file.write_text(text)
        return load(file)

    return load_text


def test_a_whole_policy_is_read(policy_of: Load) -> None:
    policy = policy_of(WHOLE)
    assert policy.required == ("gpus", "torch")
    assert policy.expect.facts() == Expected(
        device="cuda", gpus=8, gpu="H100", nodes=2, precision="bf16", shm_bytes=16 * 2**30, workers=4
    )
    assert policy.severity == {"SHM001": Severity.INFO}
    assert policy.ignore == (
        Ignore(code="SHM001", reason="one worker is enough here", expires=date(2027, 1, 31)),
        Ignore(name="shm-full", where="/dev/shm", reason="cleared each night"),
    )


def test_every_expectation_of_the_rules_can_be_given() -> None:
    names = {name.replace("shm", "shm_bytes") for name in Policy().expect.__struct_fields__}
    assert names == set(Expected.__struct_fields__)


def test_an_empty_policy_asks_for_nothing(policy_of: Load) -> None:
    assert policy_of("") == Policy()
    assert Policy().expect.facts() == Expected()


def test_a_pyproject_holds_it_in_its_table(policy_of: Load) -> None:
    assert policy_of("[tool.gpudoctor.expect]\ngpus = 2", "pyproject.toml").expect.gpus == 2


IGNORE = '[[ignore]]\nreason = "why"\n'
BAD = {
    'required = ["gpu"]': "required: no subject is called 'gpu'; the nearest is gpus",
    'required = "gpus"': "required: expected array, got str",
    "require = []": "unknown key require; the nearest is required",
    "[expct]": "unknown key expct; the nearest is expect",
    "zzz = 1": "unknown key zzz; known are required, expect, ignore, severity",
    "[expect]\nworker = 8": "unknown key expect.worker; the nearest is expect.workers",
    '[expect]\ngpus = "8"': "expect.gpus: expected int, got str",
    "[expect]\ngpus = -1": "expect.gpus: expected int >= 0",
    "[expect]\nnodes = 0": "expect.nodes: expected int >= 1",
    '[expect]\nshm = "many"': "expect.shm: 'many' is no size such as 16GiB",
    '[expect]\ndevice = "gpu"': "expect.device: invalid enum value 'gpu'",
    "expect = 3": "expect: expected object, got int",
    IGNORE: "ignore: give either code or name",
    IGNORE + 'code = "SHM001"\nname = "shm-full"': "ignore: give either code or name",
    IGNORE + 'code = "SHM999"': "no rule is called 'SHM999'",
    IGNORE + 'name = "shm-ful"': "the nearest is shm-full",
    IGNORE + 'code = "SHM001"\nexpire = 2027-01-01': "unknown key ignore.expire; the nearest is ignore.expires",
    IGNORE + 'code = "SHM001"\nexpires = "soon"': "ignore[0].expires: ",
    '[[ignore]]\ncode = "SHM001"': "ignore[0]: object missing required field reason",
    '[[ignore]]\ncode = "SHM001"\nreason = ""': "ignore[0].reason: expected str of length >= 1",
    'ignore = ["SHM001"]': "ignore[0]: expected object, got str",
    '[severity]\nSHM001 = "bad"': "invalid enum value 'bad'",
    '[severity]\nSHM01 = "info"': "the nearest is SHM001",
    "[expect": "Expected ']'",
    "a = 1\na = 2": "Cannot overwrite a value",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_policy_gives_one_line_that_names_file_and_key(text: str, policy_of: Load) -> None:
    with pytest.raises(PolicyError) as caught:
        policy_of(text)
    message = str(caught.value)
    assert BAD[text] in message
    assert "gpudoctor.toml: " in message
    assert "\n" not in message
    assert "`" not in message or "gpudoctor rules" in message


def test_a_policy_that_is_no_text_or_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "binary.toml", tmp_path / "missing.toml", tmp_path):
        with pytest.raises(PolicyError, match=str(path)):
            load(path)


def test_a_pyproject_without_the_table_is_an_error(policy_of: Load) -> None:
    for text in ("", "tool = 3", "[tool.ruff]", "[tool]\ngpudoctor = 1"):
        with pytest.raises(PolicyError, match=r"no table \[tool.gpudoctor\]"):
            policy_of(text, "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 2**34),
        ("16g", 2**34),
        ("1.5 GB", 1_500_000_000),
        ("64m", 2**26),
        ("512", 512),
        ("8 B", 8),
        ("1T", 2**40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_a_policy_survives_the_wire() -> None:
    assert msgspec.convert(msgspec.to_builtins(Policy()), Policy) == Policy()


def test_what_only_texts_tell_cannot_be_required_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "gpudoctor.toml").write_text('required = ["nccl_log"]\n')
    with pytest.raises(PolicyError, match="nccl_log"):
        load(tmp_path / "gpudoctor.toml")
