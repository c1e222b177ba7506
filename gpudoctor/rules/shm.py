"""Rules on shared memory."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules.sizes import GIB, MIB, size
from gpudoctor.rules.trials import ended, of_shared_memory
from gpudoctor.snapshot import Snapshot

DOCKER_DEFAULT = 64 * MIB  # docker run reference, --shm-size
A_GPU = GIB  # NCCL user guide, Troubleshooting: the least it advises for a container
FULL_SHARE, FULL_BYTES = 0.01, 64 * MIB  # of a large one, 1 % is still room for many batches
NEARLY_FULL_SHARE = 0.8
NCCL_GUIDE = "NCCL user guide, Troubleshooting, Shared memory"
TORCH_README = "PyTorch README, Docker Image"

ON_THE_HOST = "make it larger, here or in /etc/fstab"
IN_DOCKER = "start the container with --shm-size={size}, or with --ipc=host to use the host's; in compose: shm_size"
IN_KUBERNETES = (
    "mount a volume of kind emptyDir with medium: Memory and sizeLimit: {size}i at /dev/shm; it counts towards "
    "the pod's memory limit"
)
IN_LXC = "set lxc.mount.entry = tmpfs dev/shm tmpfs size={size},create=dir and start the container again"


def _larger(machine: Snapshot) -> tuple[Fix, ...]:
    """The way to a larger one where the job runs, and no other; both ways where that was not read."""
    gib = max(8, 2 * (machine.gpu_count() or 0), -(-(machine.expected.shm_bytes or 0) // GIB))
    host = Fix(ON_THE_HOST, f"sudo mount -o remount,size={gib}G /dev/shm", safety="needs root")
    docker = Fix(IN_DOCKER.format(size=f"{gib}g"), safety="restarts")
    if machine.container is None:
        return docker, host
    kind = machine.container.kind
    if kind in (None, "apptainer"):  # Apptainer shows the host's own /dev/shm.
        return (host,)
    if kind == "kubernetes":
        return (Fix(IN_KUBERNETES.format(size=f"{gib}G"), safety="restarts"),)
    return (Fix(IN_LXC.format(size=f"{gib}G"), safety="restarts"),) if kind == "lxc" else (docker,)


@rule(
    "SHM001",
    "shm-too-small",
    Severity.ERROR,
    why="loader workers hand over batches through /dev/shm and die with a bus error when it is full; so does NCCL",
    fix=(
        Fix(IN_DOCKER.format(size="16g"), safety="restarts"),
        Fix(IN_KUBERNETES.format(size="16G"), safety="restarts"),
        Fix(ON_THE_HOST, "sudo mount -o remount,size=16G /dev/shm", safety="needs root"),
    ),
    confirm="df -h /dev/shm",
    source=TORCH_README,
)
def shm_too_small(machine: Snapshot) -> Iterator[Evidence]:
    """/dev/shm is at most 64 MiB, the default of Docker; or (a warning) below 1 GiB a GPU or what the policy expects.

    Silent where there is none (macOS), where it has no limit, and above 64 MiB on a machine without GPUs.
    """
    total = machine.shm.total_bytes if machine.shm else None
    if not total:
        return
    gpus, expected = machine.gpu_count() or 0, machine.expected.shm_bytes or 0
    if total <= DOCKER_DEFAULT:
        severity, wanted, source = Severity.ERROR, "1 GiB a GPU or more", TORCH_README
    elif total < expected:
        severity, wanted, source = Severity.WARNING, size(expected), "the policy"
    elif total < gpus * A_GPU:
        severity, wanted, source = Severity.WARNING, f"{size(gpus * A_GPU)} for {gpus} GPUs", NCCL_GUIDE
    else:
        return
    yield Evidence(
        where="/dev/shm",
        what="size",
        seen=size(total),
        wanted=wanted,
        source=source,
        severity=severity,
        fix=_larger(machine),
    )


@rule(
    "SHM002",
    "shm-full",
    Severity.ERROR,
    why="the next batch of a loader worker or the next NCCL ring fails: bus error, or no space left on device",
    fix=Fix("remove what no process uses from /dev/shm, or make it larger", safety="destructive"),
    confirm="df -h /dev/shm; df -i /dev/shm; ls -lS /dev/shm | head",
    source=f"{TORCH_README}; 1 % is our bound for full",
)
def shm_full(machine: Snapshot) -> Iterator[Evidence]:
    """Less than 1 % and less than 64 MiB of /dev/shm are free, or no file can be added, or a request was refused.

    Silent where a large one still has room for batches, and on file systems without a limit.
    """
    shm = machine.shm
    if machine.told("shm_refused") and (shm is None or shm.refused_bytes is None):
        seen = "a request failed: no space left on device"
        yield Evidence(where="/dev/shm", what="free", seen=seen, wanted="room for it", fix=_room(machine))
        return
    if shm is None:
        return
    if shm.refused_bytes is not None:
        seen = f"a request for {size(shm.refused_bytes)} failed"
        yield Evidence(
            where="/dev/shm",
            what="free",
            seen=seen,
            wanted=size(shm.refused_bytes),
            source="the error",
            fix=_room(machine),
        )
    elif _is_full(machine):
        seen = f"{size(shm.free_bytes or 0)} of {size(shm.total_bytes or 0)}"
        yield Evidence(where="/dev/shm", what="free", seen=seen, wanted="1 % or more", fix=_room(machine))
    elif shm.inodes_free == 0:
        yield Evidence(where="/dev/shm", what="files that can be added", seen="0", wanted="more", fix=_room(machine))


def _is_full(machine: Snapshot) -> bool:
    shm = machine.shm
    if shm is None or not shm.total_bytes or shm.free_bytes is None:
        return False
    return shm.free_bytes < min(FULL_SHARE * shm.total_bytes, FULL_BYTES)


def _room(machine: Snapshot) -> tuple[Fix, ...]:
    if machine.shm and machine.shm.stale_bytes:
        text = f"remove the files that no process uses (SHM003): {size(machine.shm.stale_bytes)}"
        return Fix(text, safety="destructive"), *_larger(machine)
    return Fix("end the processes that hold files in /dev/shm, or remove files of dead ones"), *_larger(machine)


@rule(
    "SHM003",
    "stale-shm-files",
    Severity.WARNING,
    why="files that killed jobs leave behind take memory until the machine (or container) starts anew",
    fix=Fix("remove them once no job runs", safety="destructive"),
    confirm="ls -l /dev/shm; fuser -v /dev/shm/*",
    source="shm_overview(7): an object stays until it is unlinked or the system shuts down",
)
def stale_shm_files(machine: Snapshot) -> Iterator[Evidence]:
    """Files of torch, NCCL or Python's shared memory whose creator is dead and which no process has mapped or open.

    Silent where processes cannot be seen (other users' without root, the host's from a container), and about left-over
    semaphores, which take a page each.
    """
    files = [file for file in (machine.shm.stale if machine.shm else None) or () if not file.name.startswith("sem.")]
    if not files or machine.shm is None:
        return
    taken = sum(file.size_bytes or 0 for file in files)
    names = ", ".join(file.name for file in files[:3]) + (", …" if len(files) > 3 else "")
    yield Evidence(
        where="/dev/shm",
        what="files without an owner",
        seen=f"{len(files)} ({names}), {size(taken)}",
        wanted="none",
        # Another container of the same pod, or one that joined this one's IPC namespace, could still hold them.
        confidence="likely" if machine.shm.shared_unseen else "certain",
    )


@rule(
    "SHM005",
    "shm-nearly-full",
    Severity.WARNING,
    why="a few more loader workers or a larger batch fill it, and then workers die with a bus error",
    fix=Fix("remove what no process uses from /dev/shm, or make it larger", safety="destructive"),
    confirm="df -h /dev/shm",
    source=f"{TORCH_README}; 80 % is our bound for nearly full",
)
def shm_nearly_full(machine: Snapshot) -> Iterator[Evidence]:
    """At least 80 % of /dev/shm are used, and it is not full.

    Silent on file systems without a limit.
    """
    shm = machine.shm
    if shm is None or not shm.total_bytes or shm.free_bytes is None or shm.refused_bytes is not None:
        return
    share = 1 - shm.free_bytes / shm.total_bytes
    if share >= NEARLY_FULL_SHARE and not _is_full(machine):
        yield Evidence(
            where="/dev/shm",
            what="used",
            seen=f"{share:.0%} of {size(shm.total_bytes)}",
            wanted="below 80 %",
            fix=_room(machine),
        )


@rule(
    "SHM004",
    "shm-not-usable",
    Severity.ERROR,
    why="loader workers hand over batches through /dev/shm, and die or hang where they cannot",
    fix=(
        Fix(IN_DOCKER.format(size="16g"), safety="restarts"),
        Fix(ON_THE_HOST, "sudo mount -o remount,size=16G /dev/shm", safety="needs root"),
    ),
    confirm="df -h /dev/shm; then a DataLoader with num_workers=2 whose batches are 32 MiB",
    source="two workers that pass batches of 32 MiB, tried by check --deep",
    because=("SHM001", "SHM002"),
)
def shm_not_usable(machine: Snapshot) -> Iterator[Evidence]:
    """A loader worker cannot pass a batch of 32 MiB through shared memory.

    Silent where the trial failed for another reason, such as too few open files (TOR016 tells it).
    """
    measured = machine.measured
    if measured is None:
        return
    for trial in measured.loaders:
        if not trial.ok and of_shared_memory(trial.error):
            what = f"batches of {size(trial.batch_bytes)} from workers ({trial.start_method}, {trial.sharing})"
            yield Evidence(
                where="/dev/shm",
                what=what,
                seen=trial.error or "failed",
                wanted="they arrive",
                fix=_larger(machine),
            )
    for failure in measured.failures:
        if failure.stage == "loader" and of_shared_memory(failure.error):
            yield Evidence(
                where="/dev/shm",
                what="loader workers",
                seen=ended(failure),
                wanted="batches arrive",
                fix=_larger(machine),
            )


RULES: tuple[Rule[Snapshot], ...] = (shm_too_small, shm_full, stale_shm_files, shm_nearly_full, shm_not_usable)
