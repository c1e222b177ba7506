"""Where the ranks of a job are to meet."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.environment import Environment
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.launch import is_loopback, nodes, one_gpu_at_most, several_nodes
from gpudoctor.snapshot import Snapshot

RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
INITIALIZATION = "PyTorch documentation, torch.distributed, Environment variable initialization"


@rule(
    "NET001",
    "hostname-is-loopback",
    Severity.WARNING,
    why="gloo and RPC give other ranks the address of the host name: over loopback other nodes cannot reach it",
    fix=(
        Fix("give the host name its network address in /etc/hosts", safety="needs root"),
        Fix("or name the interface", "export GLOO_SOCKET_IFNAME=eth0"),
    ),
    confirm='getent ahosts "$(hostname)"',
    source="PyTorch documentation, torch.distributed, Common environment variables; Debian Reference, chapter 5.1.1",
)
def hostname_is_loopback(machine: Snapshot) -> Iterator[Evidence]:
    """The host name resolves to loopback addresses alone, or to nothing (gloo then takes loopback).

    An error for a job of several nodes. A warning with two GPUs or more, or with launch variables: a distributed job
    is near. Otherwise an info: Debian and Ubuntu write `127.0.1.1 HOSTNAME` on every machine, and one process never
    asks, nor does a job of one node need another address. No error where GLOO_SOCKET_IFNAME names the interface. Silent
    where only DNS could tell.
    """
    network, environment = machine.network, machine.environment or Environment()
    if network is None or network.host_addresses is None:
        return
    if not all(is_loopback(address) for address in network.host_addresses):
        return
    several_gpus = machine.gpus is not None and not one_gpu_at_most(machine)
    near = nodes(machine) != 1 and (environment.launched or several_gpus)
    severity = Severity.WARNING if near else Severity.INFO
    if several_nodes(machine):
        severity = Severity.WARNING if "GLOO_SOCKET_IFNAME" in environment.variables else Severity.ERROR
    yield Evidence(
        where=network.host_name or "host name",
        what="resolves to",
        seen=", ".join(network.host_addresses) or "nothing",
        wanted="an address other nodes can reach",
        severity=severity,
    )


@rule(
    "NET002",
    "master-unresolvable",
    Severity.ERROR,
    why="ranks cannot find the one they meet at, and time out at their start",
    fix=Fix("set MASTER_ADDR to a name or an address that this node resolves"),
    confirm='getent ahosts "$MASTER_ADDR"',
    source=INITIALIZATION,
)
def master_unresolvable(machine: Snapshot) -> Iterator[Evidence]:
    """MASTER_ADDR is set and the resolver says that there is no such name.

    Silent where the resolver gave no answer. Likely in Kubernetes, where a name may come into being with its pod.
    """
    network = machine.network
    if network is None or network.master_addr is None or network.master_addresses != ():
        return
    kubernetes = machine.container is not None and machine.container.kind == "kubernetes"
    yield Evidence(
        where="MASTER_ADDR",
        what=network.master_addr,
        seen=network.master_error or "does not resolve",
        wanted="an address",
        confidence="likely" if kubernetes else "certain",
    )


@rule(
    "NET003",
    "master-port-taken",
    Severity.ERROR,
    why="rank 0 cannot listen there, and the job ends with EADDRINUSE, or ranks join another job",
    fix=Fix("end the job that listens there, or take another port", "export MASTER_PORT=29501"),
    confirm='ss -ltnp "sport = :$MASTER_PORT"',
    source=INITIALIZATION,
)
def master_port_taken(machine: Snapshot) -> Iterator[Evidence]:
    """MASTER_ADDR is this host, and something already listens on MASTER_PORT; or a rank 0 failed for that.

    Silent inside a running job (a launcher has set a rank), whose own store it is that listens.
    """
    network, environment = machine.network, machine.environment
    for text in machine.told("port_taken"):
        port = text.numbers.get("port")
        yield Evidence(
            where="MASTER_PORT", what=f"port {port}" if port else "port", seen="address already in use", wanted="free"
        )
    if network is None or environment is None or not network.master_port_in_use:
        return
    if environment.variables.keys() & {"RANK", "LOCAL_RANK", "GROUP_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}:
        return
    yield Evidence(
        where="MASTER_PORT",
        what=f"port {network.master_port}" if network.master_port else "port",
        seen=f"taken by {network.master_port_owner}" if network.master_port_owner else "taken",
        wanted="free",
    )


@rule(
    "NET004",
    "rank-variables-inconsistent",
    Severity.ERROR,
    why="ranks wait for others that never come, or fail at init_process_group",
    fix=Fix("start through a launcher, which sets them all", "torchrun --nproc-per-node=gpu train.py"),
    confirm="env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)='",
    source=INITIALIZATION,
)
def rank_variables_inconsistent(machine: Snapshot) -> Iterator[Evidence]:
    """RANK and its kin are no numbers or contradict each other, some are missing, or MASTER_ADDR of several nodes is
    loopback.

    Silent for missing ones under Slurm, MPI and Lightning, which derive them later, and where only MASTER_ADDR and
    MASTER_PORT are set, for scripts to use. A warning, likely, where RANK alone is missing: a script may set it.
    """
    environment = machine.environment
    if environment is None or not environment.variables.keys() & {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    }:
        return
    yield from _not_numbers(environment)
    for rank_name, size_name in (
        ("RANK", "WORLD_SIZE"),
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("GROUP_RANK", "GROUP_WORLD_SIZE"),
    ):
        rank, size = environment.number(rank_name), environment.number(size_name)
        if rank is not None and (rank < 0 or (size is not None and rank >= size)):
            wanted = f"0 to {size - 1}" if size else "0 or more"
            yield Evidence(where=rank_name, what=f"of {size_name} {size}", seen=f"{rank}", wanted=wanted)
    world, local = environment.number("WORLD_SIZE"), environment.number("LOCAL_WORLD_SIZE")
    if world is not None and local is not None and local > world:
        yield Evidence(
            where="LOCAL_WORLD_SIZE", what=f"of WORLD_SIZE {world}", seen=f"{local}", wanted=f"{world} at most"
        )
    yield from _missing(environment)
    master = environment.variables.get("MASTER_ADDR", "")
    if world is not None and local and world > local and is_loopback(master):
        yield Evidence(
            where="MASTER_ADDR", what=f"for {-(-world // local)} nodes", seen=master, wanted="rank 0's address"
        )


def _not_numbers(environment: Environment) -> Iterator[Evidence]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
        text = environment.variables.get(name)
        if text is not None and environment.number(name) is None:
            # A service called master gives each pod of Kubernetes MASTER_PORT=tcp://10.0.0.1:80.
            yield Evidence(where=name, what="value", seen=f'"{text}"', wanted="a whole number")
    port = environment.number("MASTER_PORT")
    if port is not None and not 0 <= port <= 65535:
        yield Evidence(where="MASTER_PORT", what="value", seen=f"{port}", wanted="0 to 65535")


def _missing(environment: Environment) -> Iterator[Evidence]:
    """Of the four that env:// needs."""
    present = [name for name in RENDEZVOUS if name in environment.variables]
    absent = [name for name in RENDEZVOUS if name not in present]
    derived = (
        "SLURM_JOB_ID",
        "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "PMI_SIZE",
        "NODE_RANK",
        "PET_NNODES",
    )
    # WHY two: a lone RANK or WORLD_SIZE may be anybody's.
    if not absent or len(present) < 2 or any(name in environment.variables for name in derived):
        return
    if absent == ["RANK"] and environment.number("WORLD_SIZE") != 1:
        severity: Severity | None = Severity.WARNING
    elif "RANK" in present:
        severity = None
    else:
        return
    yield Evidence(
        where=" ".join(absent),
        what=f"beside {', '.join(present)}",
        seen="unset",
        wanted="set",
        severity=severity,
        confidence="likely" if severity else "certain",
    )


RULES: tuple[Rule[Snapshot], ...] = (
    hostname_is_loopback,
    master_unresolvable,
    master_port_taken,
    rank_variables_inconsistent,
)
