"""What error texts lead to, and the advice that their figures decide."""

import pytest

from gpudoctor.facts.errors import Errors, ErrorText
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.shm import Shm
from gpudoctor.findings import Rule
from gpudoctor.rules import error_text
from gpudoctor.rules.error_text import (
    cuda_in_forked_worker,
    gloo_cannot_connect,
    illegal_access,
    loader_worker_killed,
    nan_loss,
    out_of_memory,
    recompile_limit,
    too_many_open_files,
    too_many_workers,
    unused_parameters,
)
from gpudoctor.snapshot import Snapshot

GIB = 2**30


def _machine(kind: str, **fields: object) -> Snapshot:
    numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
    words = {name: value for name, value in fields.items() if isinstance(value, str)}
    return Snapshot(errors=Errors(recognised=(ErrorText(kind=kind, line="…", numbers=numbers, words=words),)))


@pytest.mark.parametrize("asked", error_text.RULES, ids=lambda asked: asked.code)
def test_rules_on_texts_are_quiet_about_messages_that_are_not_theirs(asked: Rule[Snapshot]) -> None:
    assert list(asked.judge(_machine("no_torch"))) == []


@pytest.mark.parametrize(
    ("numbers", "advice"),
    [
        ({"tried_bytes": 90 * GIB, "total_bytes": 80 * GIB, "free_bytes": GIB}, "larger than the board"),
        (
            {"tried_bytes": GIB, "total_bytes": 80 * GIB, "free_bytes": 0, "own_bytes": 40 * GIB},
            "other processes hold 40 GiB",
        ),
        (
            {"tried_bytes": GIB, "total_bytes": 80 * GIB, "free_bytes": 0, "own_bytes": 79 * GIB}
            | {"reserved_unallocated_bytes": 6 * GIB},
            "6 GiB are reserved in pieces too small",
        ),
        ({"tried_bytes": GIB, "total_bytes": 80 * GIB, "free_bytes": 0, "own_bytes": 79 * GIB}, "smaller batches"),
        ({}, "smaller batches"),
    ],
)
def test_out_of_memory_gives_the_advice_its_figures_ask_for(numbers: dict[str, int], advice: str) -> None:
    (found,) = out_of_memory.judge(_machine("out_of_memory", **numbers))
    assert advice in (found.fix or out_of_memory.fix)[0].text


def test_out_of_memory_of_the_host_is_told_apart() -> None:
    (found,) = out_of_memory.judge(_machine("host_out_of_memory", tried_bytes=8 * GIB))
    assert (found.where, found.seen) == ("host", "no room for 8 GiB")


def test_cuda_in_forked_worker_speaks() -> None:
    assert len(list(cuda_in_forked_worker.judge(_machine("cuda_in_forked_worker")))) == 1


def test_a_worker_that_died_of_a_bus_error_points_to_shared_memory() -> None:
    machine = _machine("loader_worker_killed", signal="bus error")
    (found,) = loader_worker_killed.judge(Snapshot(errors=machine.errors, shm=Shm(total_bytes=64 * 2**20)))
    assert found.seen == "Bus error: /dev/shm too small or full (SHM001, SHM002 tell its size)"


def test_a_worker_that_was_killed_points_to_the_hosts_memory() -> None:
    machine = _machine("loader_worker_killed", signal="Killed")
    log = KernelLog(oom_kills=("Out of memory: Killed process 12 (python)",))
    (found,) = loader_worker_killed.judge(Snapshot(errors=machine.errors, kernel_log=log))
    assert found.seen.endswith("; the kernel log: Out of memory: Killed process 12 (python)")


def test_a_worker_that_ended_without_a_word_is_likely() -> None:
    (found,) = loader_worker_killed.judge(_machine("loader_worker_killed"))
    assert found.confidence == "likely"


def test_the_last_words_of_a_worker_and_its_loader_are_one_death() -> None:
    texts = tuple(
        ErrorText(kind="loader_worker_killed", line="…", words={"signal": signal})
        for signal in ("bus error", "Bus error")
    )
    assert len(list(loader_worker_killed.judge(Snapshot(errors=Errors(recognised=texts))))) == 1


def test_loader_worker_killed_is_quiet_where_somebody_ended_the_job() -> None:
    assert list(loader_worker_killed.judge(_machine("loader_worker_killed", signal="Terminated"))) == []


def test_unused_parameters_are_named() -> None:
    (found,) = unused_parameters.judge(_machine("unused_parameters", parameters="head.weight", indices="4"))
    assert found.seen == "head.weight"
    (found,) = unused_parameters.judge(_machine("unused_parameters", indices="4 5", found_unused="Since …"))
    assert found.seen == "indices 4 5"
    assert found.fix[0].text.startswith("find_unused_parameters is on already")


def test_an_assertion_in_a_kernel_gets_advice_of_its_own() -> None:
    (found,) = illegal_access.judge(_machine("device_assert", error="device-side assert triggered", cuda_error=710))
    assert "largest label" in found.fix[0].text
    (found,) = illegal_access.judge(_machine("illegal_access", error="misaligned address", cuda_error=716))
    assert found.seen == "misaligned address: a kernel used an address that is not aligned"


def test_too_many_open_files_names_the_limit_where_it_is_known() -> None:
    machine = Snapshot(errors=_machine("too_many_open_files").errors, limits=Limits(open_files=1024))
    (found,) = too_many_open_files.judge(machine)
    assert found.seen == "more than the limit of 1024"


def test_gloo_cannot_connect_gives_gloos_reason() -> None:
    (found,) = gloo_cannot_connect.judge(_machine("gloo_cannot_connect", reason="connect [127.0.1.1]:4: refused"))
    assert found.seen == "connect [127.0.1.1]:4: refused"


def test_recompile_limit_names_function_and_reason() -> None:
    (found,) = recompile_limit.judge(_machine("recompile_limit", limit=8, function="f", reason="size mismatch"))
    assert (found.where, found.seen) == ("f", "the limit of 8, last for: size mismatch")


def test_nan_loss_speaks() -> None:
    (found,) = nan_loss.judge(_machine("nan_loss", value="nan", function="SqrtBackward0"))
    assert found.seen == "NaN from SqrtBackward0"


def test_too_many_workers_gives_a_number_that_fits() -> None:
    (found,) = too_many_workers.judge(_machine("too_many_workers", workers=104, cpus=23))
    assert (found.seen, found.fix[0].command) == ("104", "num_workers=22")
