"""Variables by known name, no secrets, nothing JSON cannot hold; NCCL's configuration files."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from gpudoctor.facts.environment import Environment
from gpudoctor.probes import environment
from gpudoctor.probes.system import System


def _read(tmp_path: Path, **variables: str) -> Environment:
    return environment.read(System(root=tmp_path, environ=variables))


def test_known_variables_are_taken_and_others_are_not(tmp_path: Path) -> None:
    fact = _read(tmp_path, NCCL_DEBUG="INFO", CUDA_VISIBLE_DEVICES="", RANK="0", SLURM_JOB_ID="7", HOME="/x", PS1="$")
    assert fact.variables == {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "", "RANK": "0", "SLURM_JOB_ID": "7"}


def test_what_looks_like_a_secret_is_never_taken(tmp_path: Path) -> None:
    fact = _read(
        tmp_path,
        TORCH_HUB_TOKEN="a",
        NVIDIA_API_KEY="b",
        CUDA_PASSWORD="c",
        SLURM_JWT="d",
        TORCH_INDEX="https://me:hunter2@host.example/simple",
        NCCL_IB_PKEY="1",
    )
    assert fact.variables == {"NCCL_IB_PKEY": "1"}


def test_a_value_that_is_not_utf8_is_named_and_fits_into_json() -> None:
    """A real environment, with the bytes of Latin-1."""
    script = (
        "import msgspec, sys; from gpudoctor.probes import environment; from gpudoctor.probes.system import System; "
        "sys.stdout.buffer.write(msgspec.json.encode(environment.read(System())))"
    )
    surroundings = {**os.environb, b"NCCL_TOPO_FILE": b"/tmp/caf\xe9", b"NCCL_\xff": b"1"}
    done = subprocess.run([sys.executable, "-c", script], env=surroundings, capture_output=True, check=True, timeout=30)
    fact = msgspec.json.decode(done.stdout, type=Environment)
    assert fact.undecodable == ("NCCL_TOPO_FILE",)
    assert fact.variables["NCCL_TOPO_FILE"] == "/tmp/caf\ufffd"


def test_the_users_configuration_wins_over_the_systems_and_comments_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text(
        "NCCL_DEBUG=WARN\n# NCCL_P2P_DISABLE=1\nNCCL_SOCKET_IFNAME==ens1f0\nPATH=/x\n"
    )
    (tmp_path / "home/me").mkdir(parents=True)
    (tmp_path / "home/me/.nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    fact = _read(tmp_path, HOME="/home/me")
    assert fact.nccl_config == {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=ens1f0"}
    assert fact.get("NCCL_DEBUG") == "INFO"


def test_a_named_configuration_file_replaces_the_one_at_home_and_is_missed_when_absent(tmp_path: Path) -> None:
    (tmp_path / "job.conf").write_text("NCCL_ALGO=Ring\n")
    assert _read(tmp_path, NCCL_CONF_FILE="/job.conf").nccl_config == {"NCCL_ALGO": "Ring"}
    assert "nccl_config" in _read(tmp_path, NCCL_CONF_FILE="/gone.conf").unread


def test_without_home_only_the_systems_file_is_read(tmp_path: Path) -> None:
    assert _read(tmp_path) == Environment()


def test_a_pipe_in_the_place_of_a_configuration_file_does_not_hold_the_probe_up(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/nccl.conf")
    assert _read(tmp_path).nccl_config == {}


def test_nodes_come_from_the_launcher_before_the_scheduler() -> None:
    slurm = {"SLURM_JOB_NUM_NODES": "4"}
    assert Environment(variables=slurm).nodes == 4
    assert Environment(variables={**slurm, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}).nodes == 1
    assert Environment(variables={"WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "8"}).nodes == 2
    assert Environment(variables={"PET_NNODES": "1:4"}).nodes is None
