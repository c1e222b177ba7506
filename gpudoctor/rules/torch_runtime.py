"""Rules on what an import of torch and a start of CUDA showed."""

import re
import signal
from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cards
from gpudoctor.rules.torch import NO_MODULE
from gpudoctor.snapshot import Snapshot

LOADER = (
    (re.compile(r"(\S+\.so[.\d]*): cannot open shared object file"), "a library is missing: {0}"),
    (
        re.compile(r"(\S+): undefined symbol: (\w+)"),
        "{0} wants the symbol {1}, which the library loaded before it lacks",
    ),
    (re.compile(r"version [`'](\S+)' not found \(required by (\S+)\)"), "{1} needs {0}, newer than this system's"),
    (re.compile(r"(\S+): (?:file too short|invalid ELF header)"), "{0} is damaged or half written"),
    (re.compile(r"No module named '([\w.]+)'"), "a package it needs is missing: {0}"),
)
"""What the dynamic loader or the import says → the cause in words."""
SIGNALS = {
    4: "the CPU lacks an instruction (AVX) that this build uses",
    7: "a file it maps is cut short, or shared memory is full",
    9: "it was killed from outside, most often for memory",
}
"""Number of the signal on Linux (not every system has all their names) → the usual cause."""
CUDA_STAGES = frozenset({"cuda", "devices", "libraries", "smoke"})
NOT_A_FAULT = ("out of memory", "busy or unavailable", "no kernel image")
"""Smoke-test errors that belong to others: memory in use, exclusive mode, TOR004 and TOR015."""


@rule(
    "TOR002",
    "torch-import-fails",
    Severity.ERROR,
    why="every job of this environment dies at its first line",
    fix=(
        Fix("put right the library or package named"),
        Fix(
            "where the installation itself is in doubt, install it again",
            "python -m pip install --force-reinstall --no-cache-dir torch",
        ),
    ),
    confirm='python -X faulthandler -c "import torch"',
    source="an import in a child process",
    because=("TOR001", "TOR011", "LIB007"),
)
def torch_import_fails(machine: Snapshot) -> Iterator[Evidence]:
    """`import torch` raises, dies by a signal, ends the process, or gives no answer in time.

    Silent where torch is simply not installed. An import that was still reading or computing at the deadline (a cold
    network disk) is a warning.
    """
    runtime, build = machine.torch_runtime, machine.torch
    if runtime is None or runtime.stage not in {"import", "versions"} or runtime.version is not None:
        return
    if runtime.error == NO_MODULE and (build is None or not build.installed):
        return
    if runtime.timed_out:
        slow = bool(runtime.busy)
        yield Evidence(
            what="import torch",
            seen="slow: still loading at the deadline" if slow else "hangs" + _innermost(runtime.traceback),
            wanted="it loads in seconds",
            severity=Severity.WARNING if slow else None,
            confidence="likely",
        )
    elif runtime.signal is not None:
        cause = SIGNALS.get(runtime.signal) or runtime.error
        seen = f"died by {_signal_name(runtime.signal)}" + (f": {cause}" if cause else _innermost(runtime.traceback))
        yield Evidence(what="import torch", seen=seen, wanted="it loads")
    elif runtime.error is not None:
        yield Evidence(what="import torch", seen=_first_line(runtime.error), wanted="it loads")
        if cause := _loader_cause(runtime.error):
            yield Evidence(what="cause", seen=cause, wanted="one that fits")
    else:
        return
    if build is not None and build.shadowed_by is not None:
        wanted = build.path or "the installed package"
        yield Evidence(what="the name torch is taken first by", seen=build.shadowed_by, wanted=wanted)


def _loader_cause(error: str) -> str | None:
    for pattern, words in LOADER:
        if match := pattern.search(error):
            return words.format(*match.groups())
    return None


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _innermost(stacks: str | None) -> str:
    """Where the newest frame of the dumped stacks stands."""
    match = re.search(r'File "([^"]+)", line (\d+) in (\S+)', stacks or "")
    return f" in {match[3]} ({match[1]}:{match[2]})" if match else ""


@rule(
    "TOR004",
    "arch-not-built",
    Severity.ERROR,
    why='kernels fail with "no kernel image is available for execution on the device"',
    fix=Fix(
        "install a torch built for this card: for cards up to 7.0 (Volta, Pascal, Maxwell) the cu126 builds of up to"
        " 2.14, for 10.0 and 12.0 (Blackwell) 2.7 or newer with cu128 or newer"
    ),
    confirm='python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"',
    source="CUDA programming guide, binary and PTX compatibility",
)
def arch_not_built(machine: Snapshot) -> Iterator[Evidence]:
    """No binary code of this torch runs on the card, and no PTX it carries can be translated for it.

    Code for 8.6 runs on 8.9, and so on within a major version. Silent where the smoke test ran on that card, and for
    builds whose list is not known. A list from the table of releases counts as likely.
    """
    build, runtime = machine.torch, machine.torch_runtime
    told = runtime.arch_list if runtime is not None else None
    arch_list = told or (build.arch_list if build is not None else None)
    if not arch_list:
        return
    cuda = (runtime.cuda if runtime is not None else None) or (build.cuda if build is not None else None)
    ran = {test.device for test in (runtime.smoke if runtime is not None else None) or () if test.ok}
    for capability, indices in cards.by_capability(machine.capabilities()).items():
        if any(cards.runs(arch, capability, cuda) for arch in arch_list) or ran.intersection(indices):
            continue
        yield Evidence(
            where=cards.gpus(indices),
            what="GPU code for this card",
            seen=" ".join(arch_list),
            wanted=f"code that runs on {capability} (sm_{capability.replace('.', '')})",
            confidence="certain" if told else "likely",
        )


@rule(
    "TOR005",
    "cuda-unavailable",
    Severity.ERROR,
    why="torch.cuda cannot be used, so jobs fail or fall back to the CPU",
    fix=Fix("look up the error; nvidia-smi and the kernel log tell whether the driver sees the GPU", "nvidia-smi"),
    confirm='python -c "import torch; torch.cuda.init()"',
    source="torch.cuda.is_available() and a small product on each GPU, in a child process",
    because=(
        *(f"DRV{number:03}" for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13)),
        *("CTR001", "CTR002", "CTR004", "CTR006", "ENV001", "ENV003", "TOR002", "TOR012"),
        *("GPU001", "GPU003", "GPU005", "GPU007", "GPU015", "GPU017", "GPU018"),
    ),
)
def cuda_unavailable(machine: Snapshot) -> Iterator[Evidence]:
    """A CUDA build of torch says that CUDA is not available, CUDA's start hangs or dies, or a GPU fails its smoke test.

    Silent for CPU and ROCm builds, where the policy says "cpu", and for GPUs that are full, in use exclusively or
    without code (TOR004). Anything that explains it takes its place.
    """
    runtime, build = machine.torch_runtime, machine.torch
    if runtime is None or runtime.rocm or machine.expected.device not in {None, "cuda"}:
        return
    if not (runtime.cuda or (build is not None and build.build == "cuda")):
        return
    if runtime.stage in CUDA_STAGES and (ended := _ended(machine)):
        yield ended
    if runtime.cuda_available is False:
        code = f" (error {runtime.cuda_error_code})" if runtime.cuda_error_code else ""
        words = _first_line(runtime.cuda_error) if runtime.cuda_error else "False"
        yield Evidence(what="torch.cuda.is_available()", seen=words + code, wanted="True")
    for test in runtime.smoke or ():
        if not test.ok and test.error and not any(words in test.error for words in NOT_A_FAULT):
            yield Evidence(where=cards.gpus([test.device]), what="smoke test", seen=test.error, wanted="a product")


def _ended(machine: Snapshot) -> Evidence | None:
    """How the child ended in a stage that starts CUDA; None where it only raised something that is not CUDA's."""
    runtime = machine.torch_runtime
    if runtime is None:
        return None
    what = f"start of CUDA, stage {runtime.stage}"
    if runtime.timed_out:
        # WHY not judged by `busy` as the import is: a thread that waits for a stuck kernel spins, and looks busy.
        seen = "no answer by the deadline" + _innermost(runtime.traceback)
        return Evidence(what=what, seen=seen, wanted="it starts", confidence="likely")
    if runtime.signal is not None:
        words = f": {runtime.error}" if runtime.error else _innermost(runtime.traceback)
        return Evidence(what=what, seen=f"died by {_signal_name(runtime.signal)}{words}", wanted="it starts")
    if runtime.error is not None and re.search(r"cuda|nvidia|driver", runtime.error, re.IGNORECASE):
        if any(words in runtime.error for words in NOT_A_FAULT):
            return None
        return Evidence(what=what, seen=_first_line(runtime.error), wanted="it starts")
    return None


@rule(
    "TOR015",
    "extension-arch",
    Severity.ERROR,
    why="an extension was built for other cards than this one; torch itself was not",
    fix=Fix(
        "build the extension for this card: set TORCH_CUDA_ARCH_LIST to its compute capability and install it again"
    ),
    confirm="cuobjdump --list-elf EXTENSION.so",
    source="CUDA error 209, no kernel image is available for execution on the device",
    because=("TOR004",),
)
def extension_arch(machine: Snapshot) -> Iterator[Evidence]:
    """A program failed for want of GPU code although torch has code for every card here.

    Silent where torch's own list or the cards are not known: the gap may then be torch's.
    """
    runtime = machine.torch_runtime
    if runtime is None or not runtime.arch_list:
        return
    capabilities = set(machine.capabilities().values())
    covered = capabilities and all(
        any(cards.runs(arch, capability, runtime.cuda) for arch in runtime.arch_list) for capability in capabilities
    )
    texts = (runtime.error, runtime.cuda_error, *(test.error for test in runtime.smoke or ()))
    said = next((text for text in texts if text and "no kernel image" in text), None)
    if covered and (said or runtime.cuda_error_code == 209):
        yield Evidence(what="program", seen=_first_line(said or "CUDA error 209"), wanted="code for this card")


RULES: tuple[Rule[Snapshot], ...] = (torch_import_fails, arch_not_built, cuda_unavailable, extension_arch)
