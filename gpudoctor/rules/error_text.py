"""Rules on error texts: pasted ones, or what a script wrote before it died."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.errors import ErrorText
from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.sizes import size
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import error_texts

OTHERS_SHARE = 0.25
"""Of the board's memory in other hands: beyond what a context of one's own takes (0.3 to 1 GiB)."""
STOPPED = frozenset({"terminated", "interrupt", "hangup", "quit"})
"""Signals that somebody sends to end a job: no fault of the loader's."""
DDP = "PyTorch documentation, torch.nn.parallel.DistributedDataParallel"


def _where(text: ErrorText) -> str:
    return f"rank {text.rank}" if text.rank is not None else ""


def _cause(text: ErrorText) -> str:
    row = error_texts.cause(text.kind, text.numbers.get("cuda_error"))
    return row.cause if row is not None else text.kind


@rule(
    "ERR001",
    "out-of-memory",
    Severity.ERROR,
    why="the job ended, or will, at the first tensor that finds no room",
    fix=(
        Fix("smaller batches a GPU, with gradient accumulation to keep the global batch"),
        Fix("train in bf16, and recompute activations in the backward pass (torch.utils.checkpoint)"),
        Fix("where model and optimizer alone fill the GPU, shard them: FSDP2 (fully_shard) or ZeRO"),
    ),
    confirm="nvidia-smi; torch.cuda.memory_summary() in the script",
    source="PyTorch documentation, CUDA semantics, Memory management",
)
def out_of_memory(machine: Snapshot) -> Iterator[Evidence]:
    """A message says that the memory of a GPU, or of the host, was not enough.

    The figures in it decide the advice: memory in other hands, fragments, or a tensor larger than the board.
    """
    for text in machine.told("out_of_memory", "host_out_of_memory"):
        host = text.kind == "host_out_of_memory"
        gpu = text.numbers.get("gpu")
        asked, total, free = (text.numbers.get(f"{name}_bytes") for name in ("tried", "total", "free"))
        seen = f"no room for {size(asked)}" if asked is not None else "no room"
        if free is not None and total is not None:
            seen += f": {size(free)} free of {size(total)}"
        yield Evidence(
            where="host" if host else ", ".join(filter(None, (f"GPU {gpu}" if gpu is not None else "", _where(text)))),
            what="memory",
            seen=seen + (f", {text.count} times" if text.count > 1 else ""),
            wanted="room for the next tensor",
            fix=_HOST_MEMORY if host else _advice(text),
        )


_HOST_MEMORY = (
    Fix("fewer loader workers, a smaller prefetch_factor, and data that is read as needed instead of kept in memory"),
    Fix("in a container or a batch job, ask for more memory", safety="restarts"),
)


def _advice(text: ErrorText) -> tuple[Fix, ...]:
    """What the figures tell; empty where they are those of a job that simply needs more."""
    numbers = text.numbers
    asked, total, free = (numbers.get(f"{name}_bytes") for name in ("tried", "total", "free"))
    if asked is not None and total is not None and asked > total:
        return (Fix("this one tensor is larger than the board: look at its shape, or split it"), *out_of_memory.fix)
    own = numbers.get("own_bytes") or numbers.get("reserved_bytes")
    others = total - free - own if total is not None and free is not None and own is not None else 0
    if total is not None and others > OTHERS_SHARE * total:
        held = Fix(f"other processes hold {size(others)} of this GPU: end them, or take another GPU", "nvidia-smi")
        return held, *out_of_memory.fix
    unused = numbers.get("reserved_unallocated_bytes")
    if unused is None and "reserved_bytes" in numbers and "allocated_bytes" in numbers:
        unused = numbers["reserved_bytes"] - numbers["allocated_bytes"]
    if unused is not None and asked is not None and unused >= asked:
        fragments = Fix(
            f"{size(unused)} are reserved in pieces too small: let the allocator's segments grow",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        )
        return fragments, *out_of_memory.fix
    return ()


@rule(
    "ERR002",
    "cuda-in-forked-worker",
    Severity.ERROR,
    why="a forked copy of a process cannot use the CUDA its parent has started",
    fix=(
        Fix("make the Dataset return CPU tensors, and move batches to the GPU in the training process"),
        Fix(
            "else start the workers anew: pass this to the DataLoader (or to torch.multiprocessing.get_context)",
            'multiprocessing_context="spawn"',
        ),
    ),
    confirm="look for .cuda() or .to(device) in the Dataset, and for CUDA calls before the workers start",
    source="PyTorch documentation, Multiprocessing best practices, CUDA in multiprocessing",
)
def cuda_in_forked_worker(machine: Snapshot) -> Iterator[Evidence]:
    """A message says that CUDA was started in a process that was forked from one that already used it.

    Silent for other errors of workers.
    """
    for text in machine.told("cuda_in_forked_worker"):
        yield Evidence(where=_where(text), what="worker process", seen=_cause(text), wanted="spawn, or CPU tensors")


@rule(
    "ERR003",
    "loader-worker-killed",
    Severity.ERROR,
    why="the next batch never comes: the loader raises, and the job ends",
    fix=(
        Fix("let the error show where it happens", "num_workers=0", safety="slower"),
        Fix("see whether the kernel ended it for memory", "sudo dmesg | grep -i -e oom -e 'killed process'"),
    ),
    confirm="df -h /dev/shm; dmesg | tail",
    source="torch/utils/data/_utils/signal_handling.py; signal(7)",
)
def loader_worker_killed(machine: Snapshot) -> Iterator[Evidence]:
    """A loader worker died: by a signal, or without a word.

    A bus error points to /dev/shm, SIGKILL to the host's memory, others to a library. Silent for signals that end a
    whole job (SIGTERM, SIGINT), and for exceptions in a Dataset, which carry their own text.
    """
    told: set[tuple[str, str]] = set()
    for text in machine.told("loader_worker_killed"):
        signal = text.words.get("signal", "").capitalize()
        # The worker's own last words and the loader's speak of one death.
        if signal.lower() in STOPPED or (_where(text), signal) in told:
            continue
        told.add((_where(text), signal))
        cause, fix = _death(machine, signal.lower())
        yield Evidence(
            where=_where(text),
            what="loader worker",
            seen=(signal or "it ended without a word") + (f", {text.count} times" if text.count > 1 else "") + cause,
            wanted="it lives as long as its loader",
            confidence="certain" if signal else "likely",
            fix=fix,
        )


def _death(machine: Snapshot, signal: str) -> tuple[str, tuple[Fix, ...]]:
    """The likeliest cause in words (with its leading comma), and what to do."""
    if signal == "bus error":
        damaged = machine.libraries.damaged if machine.libraries is not None else None
        small = machine.shm is not None and machine.shm.total_bytes is not None
        also = ", or by a file that was cut off (LIB007)" if damaged else ""
        known = " (SHM001, SHM002 tell its size)" if small else ""
        return f": /dev/shm too small or full{known}{also}", (
            Fix("give /dev/shm more room: docker run --shm-size=16g, or --ipc=host", safety="restarts"),
            Fix("or hand batches over through files", "torch.multiprocessing.set_sharing_strategy('file_system')"),
        )
    if signal == "killed":
        kills = machine.kernel_log.oom_kills if machine.kernel_log is not None else ()
        group = machine.limits.oom_kills if machine.limits is not None else None
        said = f"; the kernel log: {kills[-1]}" if kills else "; the control group counts such kills" if group else ""
        return f": most often for want of the host's memory{said}", _HOST_MEMORY
    return "", ()


@rule(
    "ERR004",
    "unused-parameters",
    Severity.ERROR,
    why="DDP waits for the gradient of every parameter, and those got none",
    fix=(
        Fix("leave the unused parameters out of the model, or let every output take part in the loss"),
        Fix("else tell DDP to look for them in each step", "find_unused_parameters=True", safety="slower"),
    ),
    confirm="TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters",
    source=DDP,
)
def unused_parameters(machine: Snapshot) -> Iterator[Evidence]:
    """DDP says that parameters took no part in producing the loss.

    Silent for its other complaint, a parameter that is ready twice.
    """
    for text in machine.told("unused_parameters"):
        named = text.words.get("parameters") or text.words.get("indices")
        indices = "" if "parameters" in text.words or not named else "indices "
        fix: tuple[Fix, ...] = ()
        if "found_unused" in text.words:
            fix = (Fix("find_unused_parameters is on already: return every tensor that the loss needs from forward()"),)
        yield Evidence(
            where=_where(text),
            what="parameters without a gradient",
            seen=f"{indices}{named.strip()}" if named else "some",
            wanted="none",
            fix=fix,
        )


@rule(
    "ERR005",
    "illegal-access",
    Severity.ERROR,
    why="the GPU stops the whole process; the call that reports it is often not the one at fault",
    fix=(
        Fix("make the report exact: launches that wait", "export CUDA_LAUNCH_BLOCKING=1", safety="slower"),
        Fix("then let NVIDIA's checker name the kernel", "compute-sanitizer python train.py", safety="slower"),
        Fix("where another board runs the same job, suspect this one: look for Xids", "sudo dmesg | grep Xid"),
    ),
    confirm="CUDA_LAUNCH_BLOCKING=1 python train.py",
    source="CUDA runtime API reference, cudaErrorIllegalAddress and cudaErrorAssert",
    because=("GPU005", "GPU007"),
)
def illegal_access(machine: Snapshot) -> Iterator[Evidence]:
    """A kernel touched memory that is not its own, or a check inside a kernel failed.

    Silent for errors that only advise CUDA_LAUNCH_BLOCKING.
    """
    for text in machine.told("illegal_access", "device_assert"):
        row = error_texts.cause(text.kind)
        yield Evidence(
            where=_where(text),
            what="kernel",
            seen=f"{text.words['error']}: {_cause(text)}",
            wanted="no error",
            fix=(Fix(row.fix), *illegal_access.fix[:1]) if row is not None and row.fix else (),
        )


@rule(
    "ERR006",
    "too-many-open-files",
    Severity.ERROR,
    why="each tensor that a worker hands over holds a file open, and so does each socket",
    fix=(
        Fix("raise the limit before the job starts", "ulimit -n 65536"),
        Fix("or hand tensors over by name", "torch.multiprocessing.set_sharing_strategy('file_system')"),
    ),
    confirm="ulimit -n; ls /proc/PID/fd | wc -l",
    source="PyTorch documentation, torch.multiprocessing, Sharing strategies; errno(3), EMFILE",
)
def too_many_open_files(machine: Snapshot) -> Iterator[Evidence]:
    """A call failed with EMFILE, or a tensor's file arrived without its descriptor.

    Silent on a low limit alone, which is SYS001.
    """
    limit = machine.limits.open_files if machine.limits is not None else None
    for text in machine.told("too_many_open_files"):
        yield Evidence(
            where=_where(text),
            what="open files",
            seen="more than the limit" + (f" of {limit}" if limit else ""),
            wanted="a limit that the job fits in",
        )


@rule(
    "ERR007",
    "gloo-cannot-connect",
    Severity.ERROR,
    why="every rank opens a connection to every other, and one that fails ends the job at its start",
    fix=(
        Fix("name the interface that leads to the other nodes, on all of them", "export GLOO_SOCKET_IFNAME=eth0"),
        Fix("give each host name its network address in /etc/hosts, not 127.0.1.1", safety="needs root"),
        Fix("let the nodes reach each other on all ports: gloo listens on any", safety="needs root"),
    ),
    confirm='getent ahosts "$(hostname)"; ip -brief address',
    source="PyTorch documentation, torch.distributed, Common environment variables",
    because=("NET001", "NET002", "NCC008", "NCC018"),
)
def gloo_cannot_connect(machine: Snapshot) -> Iterator[Evidence]:
    """gloo says that ranks did not reach each other, or that it can use no interface.

    Silent where a connection that stood broke later: a peer died then, and its own error is the cause.
    """
    loopback = machine.told("host_name_unresolvable")
    for text in machine.told("gloo_cannot_connect"):
        yield Evidence(
            where=_where(text),
            what="connections between ranks",
            seen=text.words["reason"] + ("; host names do not resolve, so loopback was taken" if loopback else ""),
            wanted="one from each rank to each other",
        )


@rule(
    "ERR008",
    "recompile-limit",
    Severity.WARNING,
    why="beyond the limit the function runs uncompiled (an error with fullgraph=True), after long compilations",
    fix=(
        Fix(
            "let sizes vary in one compiled variant: torch.compile(dynamic=True), or mark_dynamic on the one that does"
        ),
        Fix("or pad inputs to a few sizes"),
        Fix("see what changes from call to call", "export TORCH_LOGS=recompiles"),
    ),
    confirm="TORCH_LOGS=recompiles python train.py",
    source="PyTorch documentation, torch.compile, Recompilation",
)
def recompile_limit(machine: Snapshot) -> Iterator[Evidence]:
    """torch._dynamo gave up on a function for the number of its variants.

    Silent on recompilations below the limit.
    """
    texts = machine.told("recompile_limit")
    fatal = any("fatal" in text.words for text in texts)
    for text in [text for text in texts if "limit" in text.numbers] or list(texts):
        limit, reason = text.numbers.get("limit"), text.words.get("reason")
        yield Evidence(
            where=text.words.get("function", _where(text)),
            what="variants compiled",
            seen=(f"the limit of {limit}" if limit else "the limit")
            + (f", last for: {reason}" if reason else "")
            + (", fatal with fullgraph=True" if fatal else ""),
            wanted="few",
        )


@rule(
    "ERR009",
    "nan-loss",
    Severity.WARNING,
    why="from then on every weight is NaN as well, and the run learns nothing more",
    fix=(
        Fix("with fp16, scale the loss (torch.amp.GradScaler), or take bf16, whose range is that of float32"),
        Fix("lower the learning rate or warm it up, and clip gradients: torch.nn.utils.clip_grad_norm_"),
        Fix("find the operator that makes it", "torch.autograd.set_detect_anomaly(True)", safety="slower"),
    ),
    confirm="print the loss each step; torch.isnan(loss)",
    source="PyTorch documentation, torch.autograd, Anomaly detection; Automatic mixed precision",
)
def nan_loss(machine: Snapshot) -> Iterator[Evidence]:
    """A log prints a loss of NaN, or anomaly detection names an operator that returned it.

    Silent on infinities, which a gradient scaler meets now and then on purpose.
    """
    for text in machine.told("nan_loss"):
        by = f" from {text.words['function']}" if "function" in text.words else ""
        yield Evidence(
            where=_where(text),
            what="loss",
            seen=f"NaN{by}" + (f", {text.count} times" if text.count > 1 else ""),
            wanted="a number",
        )


@rule(
    "DAT004",
    "too-many-workers",
    Severity.WARNING,
    why="workers, and the process that launches kernels, take each other's CPUs",
    fix=Fix("start no more workers than there are CPUs this process may use: len(os.sched_getaffinity(0))"),
    confirm="nproc; print(loader.num_workers)",
    source="torch.utils.data.DataLoader warns of it",
)
def too_many_workers(machine: Snapshot) -> Iterator[Evidence]:
    """torch warns that a loader starts more workers than there are CPUs it may use.

    Silent without that warning: a profile judges the workers themselves.
    """
    for text in machine.told("too_many_workers"):
        cpus = text.numbers["cpus"]
        yield Evidence(
            where=_where(text),
            what="loader workers",
            seen=f"{text.numbers['workers']}",
            wanted=f"at most {cpus}, the CPUs this process may use",
            fix=(Fix("start no more workers than there are CPUs", f"num_workers={max(1, cpus - 1)}"),),
        )


RULES: tuple[Rule[Snapshot], ...] = (
    out_of_memory,
    cuda_in_forked_worker,
    loader_worker_killed,
    unused_parameters,
    illegal_access,
    too_many_open_files,
    gloo_cannot_connect,
    recompile_limit,
    nan_loss,
    too_many_workers,
)
