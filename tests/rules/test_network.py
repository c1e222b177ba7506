"""Where the ranks of a job are to meet."""

import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.network import Network
from gpudoctor.findings import Severity
from gpudoctor.rules.network import (
    hostname_is_loopback,
    master_port_taken,
    master_unresolvable,
    rank_variables_inconsistent,
)
from gpudoctor.snapshot import Snapshot

DEBIAN = Network(host_name="node1", host_addresses=("127.0.1.1",))
TWO = Gpus(boards=(Gpu(index=0), Gpu(index=1)))


def _severities(machine: Snapshot) -> list[Severity | None]:
    return [found.severity for found in hostname_is_loopback.judge(machine)]


def test_a_loopback_host_name_is_an_error_for_several_nodes() -> None:
    assert _severities(Snapshot(network=DEBIAN, expected=Expected(nodes=2))) == [Severity.ERROR]
    assert _severities(Snapshot(network=Network(host_addresses=()), expected=Expected(nodes=2))) == [Severity.ERROR]


def test_a_loopback_host_name_is_a_warning_where_a_distributed_job_is_near() -> None:
    assert _severities(Snapshot(network=DEBIAN, gpus=TWO)) == [Severity.WARNING]
    launched = Environment(variables={"MASTER_ADDR": "node1"})
    assert _severities(Snapshot(network=DEBIAN, environment=launched)) == [Severity.WARNING]


def test_a_loopback_host_name_is_an_info_on_a_laptop() -> None:
    assert _severities(Snapshot(network=DEBIAN)) == [Severity.INFO]
    assert _severities(Snapshot(network=DEBIAN, gpus=Gpus(boards=(Gpu(index=0),)))) == [Severity.INFO]


def test_an_interface_named_for_gloo_takes_the_edge_off() -> None:
    named = Environment(variables={"GLOO_SOCKET_IFNAME": "eth0"})
    assert _severities(Snapshot(network=DEBIAN, environment=named, expected=Expected(nodes=2))) == [Severity.WARNING]


def test_a_host_name_with_a_network_address_or_unknown_to_files_says_nothing() -> None:
    for addresses in (("10.0.0.1",), ("127.0.1.1", "10.0.0.1"), None):
        network = Network(host_name="node1", host_addresses=addresses)
        assert _severities(Snapshot(network=network, expected=Expected(nodes=2))) == []


def test_an_unresolvable_master_speaks_with_the_resolvers_words() -> None:
    network = Network(master_addr="node7", master_addresses=(), master_error="Name or service not known")
    (found,) = master_unresolvable.judge(Snapshot(network=network))
    assert (found.seen, found.confidence) == ("Name or service not known", "certain")
    (likely,) = master_unresolvable.judge(Snapshot(network=network, container=Container(kind="kubernetes")))
    assert likely.confidence == "likely"


def test_a_master_that_resolves_or_was_not_asked_for_says_nothing() -> None:
    for addresses in (("10.0.0.9",), None):
        network = Network(master_addr="node7", master_addresses=addresses)
        assert list(master_unresolvable.judge(Snapshot(network=network))) == []
    assert list(master_unresolvable.judge(Snapshot(network=Network(master_addresses=())))) == []


TAKEN = Network(master_addr="localhost", master_port=29500, master_port_in_use=True, master_port_owner="python (7)")


def test_a_taken_port_speaks_before_the_launch() -> None:
    (found,) = master_port_taken.judge(Snapshot(network=TAKEN, environment=Environment()))
    assert found.seen == "taken by python (7)"


def test_a_taken_port_is_the_jobs_own_inside_it() -> None:
    inside = Environment(variables={"RANK": "0", "WORLD_SIZE": "2"})
    assert list(master_port_taken.judge(Snapshot(network=TAKEN, environment=inside))) == []
    assert list(master_port_taken.judge(Snapshot(network=TAKEN))) == []
    assert list(master_port_taken.judge(Snapshot(network=Network(), environment=Environment()))) == []


WHOLE = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def _where(**variables: str) -> list[str]:
    machine = Snapshot(environment=Environment(variables=variables))
    return [found.where for found in rank_variables_inconsistent.judge(machine)]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"RANK": "8"}, ["RANK"]),
        ({"RANK": "-1"}, ["RANK"]),
        ({"RANK": "three"}, ["RANK"]),
        ({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, ["LOCAL_RANK"]),
        ({"LOCAL_WORLD_SIZE": "16"}, ["LOCAL_WORLD_SIZE"]),
        ({"MASTER_PORT": "tcp://10.0.0.1:80"}, ["MASTER_PORT"]),
        ({"MASTER_PORT": "70000"}, ["MASTER_PORT"]),
        ({"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}, ["MASTER_ADDR"]),
    ],
)
def test_variables_that_contradict_each_other_are_errors(change: dict[str, str], where: list[str]) -> None:
    assert _where(**{**WHOLE, **change}) == where


@pytest.mark.parametrize("missing", ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_one_missing_beside_a_rank_is_an_error(missing: str) -> None:
    assert _where(**{name: value for name, value in WHOLE.items() if name != missing}) == [missing]


def test_a_missing_rank_is_a_warning() -> None:
    variables = {name: value for name, value in WHOLE.items() if name != "RANK"}
    (found,) = rank_variables_inconsistent.judge(Snapshot(environment=Environment(variables=variables)))
    assert (found.where, found.severity, found.confidence) == ("RANK", Severity.WARNING, "likely")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        WHOLE,
        {**WHOLE, "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "localhost"},
        {**WHOLE, "WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "4"},
        {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
        {"MASTER_PORT": "tcp://10.0.0.1:80"},
        {"RANK": "0"},
        {"WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
        {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"NODE_RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
    ],
)
def test_whole_sets_and_sets_that_others_complete_are_fine(variables: dict[str, str]) -> None:
    assert _where(**variables) == []
