"""Every reader, the most specific first."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.readers import (
    collect_env,
    driver,
    environment,
    error_text,
    jupyter,
    kernel_log,
    limits,
    lscpu,
    lspci,
    nccl_log,
    nvidia_smi,
    nvidia_smi_query,
    nvlink,
    pip_list,
    python_session,
    topo,
)
from gpudoctor.snapshot import Snapshot


@dataclass(frozen=True)
class Reader:
    """One tool, or one kind of text."""

    name: str
    read: Callable[[str], Snapshot | None]


READERS: tuple[Reader, ...] = (
    # Where two tell the same, the earlier wins: what a tool says of one thing before what it says in passing.
    Reader(nvidia_smi_query.NAME, nvidia_smi_query.read),
    Reader(nvidia_smi.NAME, nvidia_smi.read),
    Reader(nvlink.NAME, nvlink.read),
    Reader(topo.NAME, topo.read),
    Reader(driver.NAME, driver.read),
    Reader(error_text.NAME, error_text.read),
    Reader(nccl_log.NAME, nccl_log.read),
    Reader(kernel_log.NAME, kernel_log.read),
    Reader(collect_env.NAME, collect_env.read),
    Reader(python_session.NAME, python_session.read),
    Reader(pip_list.NAME, pip_list.read),
    Reader(lspci.NAME, lspci.read),
    Reader(lscpu.NAME, lscpu.read),
    Reader(environment.NAME, environment.read),
    Reader(limits.NAME, limits.read),
    Reader(jupyter.NAME, jupyter.read),
)
