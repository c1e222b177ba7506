"""Rules on the torch installation: what its files say."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import torch_releases

NO_MODULE = "ModuleNotFoundError: No module named 'torch'"


@rule(
    "TOR001",
    "no-torch",
    Severity.ERROR,
    why="nothing can be trained in this environment",
    fix=(
        Fix("install it into this interpreter", "python -m pip install torch"),
        Fix("or examine the environment that has it: gpudoctor check --python PATH"),
    ),
    confirm='python -c "import torch"',
    source="the interpreter's own search path",
    because=("TOR011",),
)
def no_torch(machine: Snapshot) -> Iterator[Evidence]:
    """The interpreter examined has no torch anywhere on its path.

    Silent where the path could not be read, and where an import found it all the same.
    """
    build, runtime = machine.torch, machine.torch_runtime
    if runtime is not None and runtime.version is not None:
        return
    absent = build is not None and build.installed is False
    if absent or (build is None and runtime is not None and runtime.error == NO_MODULE):
        python = build.python if build is not None and build.python else "the interpreter examined"
        yield Evidence(what="torch", seen=f"not installed in {python}", wanted="installed")


@rule(
    "TOR003",
    "cpu-only-torch",
    Severity.ERROR,
    why="this build holds no GPU code at all, so no driver and no setting makes torch.cuda available",
    fix=Fix(
        "install a CUDA build: the default one on Linux; on Windows choose it at pytorch.org/get-started",
        "python -m pip install --force-reinstall torch",
    ),
    confirm='python -c "import torch; print(torch.__version__, torch.version.cuda)"',
    source="torch/version.py: cuda is None",
)
def cpu_only_torch(machine: Snapshot) -> Iterator[Evidence]:
    """torch was built for the CPU alone: an error with an NVIDIA GPU in the machine, a warning without.

    Silent on macOS, for ROCm and XPU builds, and where the policy says that jobs here train on something else.
    """
    build = machine.torch
    if build is None or build.build != "cpu" or machine.expected.device not in {None, "cuda"}:
        return
    if machine.host is not None and machine.host.system == "Darwin":
        return
    present = _has_gpu(machine)
    yield Evidence(
        what="torch build",
        seen=f"{build.version or 'torch'}, for the CPU",
        wanted="a CUDA build, since there is a GPU" if present else "a CUDA build, where jobs are to use a GPU",
        severity=Severity.ERROR if present else Severity.WARNING,
    )


def _has_gpu(machine: Snapshot) -> bool:
    """Boards the driver lists; outside containers (which see the host's bus) those on the PCI bus too."""
    if machine.gpus is not None and machine.gpus.boards:
        return True
    on_bus = machine.driver.pci_gpus if machine.driver is not None else None
    return bool(on_bus) and machine.container is not None and machine.container.kind is None


@rule(
    "TOR011",
    "python-unsupported",
    Severity.ERROR,
    why="compiled modules load only into the Python version they were built for",
    fix=Fix("make an environment with a Python this torch has wheels for, and install torch there"),
    confirm="python -m pip debug --verbose",
    source="wheel tags of the installed torch; wheel names of the releases",
)
def python_unsupported(machine: Snapshot) -> Iterator[Evidence]:
    """The installed wheel is for another Python, or torch is not installed and no release has a wheel for this one.

    Silent where torch imports, and for wheels of the stable ABI. A Python older than all releases counts; one that is
    newer is judged likely only, since a release may have come after the table.
    """
    build, runtime = machine.torch, machine.torch_runtime
    if build is None or build.python_tag is None or (runtime is not None and runtime.version is not None):
        return
    tags = [tag.partition("-") for tag in build.python_tags]
    if tags and not any(_fits(python, rest, build.python_tag) for python, _, rest in tags):
        yield Evidence(what="wheel", seen=build.python_tags[0], wanted=f"a wheel for {build.python_tag}")
    if build.installed is False:
        known = {tag.removesuffix("m") for release in torch_releases.releases() for tag in release.python}
        if build.python_tag not in known:
            yield Evidence(
                what="Python",
                seen=build.python_version or build.python_tag,
                wanted=f"one that torch {torch_releases.releases()[-1].version} has wheels for: "
                + ", ".join(torch_releases.releases()[-1].python),
                confidence="likely",
            )


def _fits(python: str, rest: str, interpreter: str) -> bool:
    """A tag `cp311-cp311-…` fits cp311; `cp313-cp313t-…` fits cp313t; abi3 and `py3-none` fit all."""
    abi = rest.partition("-")[0]
    if abi in {"abi3", "none"}:
        return True
    return interpreter in {python + ("t" if abi.endswith("t") else ""), abi.removesuffix("m")}


@rule(
    "TOR012",
    "rocm-torch-on-nvidia",
    Severity.ERROR,
    why="a build for AMD GPUs cannot use NVIDIA ones",
    fix=Fix("install the CUDA build", "python -m pip install --force-reinstall torch"),
    confirm='python -c "import torch; print(torch.version.hip, torch.version.cuda)"',
    source="torch/version.py: hip is set",
)
def rocm_torch_on_nvidia(machine: Snapshot) -> Iterator[Evidence]:
    """torch was built for ROCm and the machine's driver lists NVIDIA GPUs.

    Silent where that torch finds an AMD GPU beside them, and where the policy says ROCm.
    """
    build, runtime = machine.torch, machine.torch_runtime
    if build is None or build.build != "rocm" or machine.expected.device not in {None, "cuda"}:
        return
    if machine.gpus is None or not machine.gpus.boards or (runtime is not None and runtime.cuda_available):
        return
    yield Evidence(
        what="torch build",
        seen=f"{build.version or 'torch'}, for ROCm",
        wanted=f"a CUDA build, for {machine.gpus.boards[0].name or 'the NVIDIA GPU'}",
    )


@rule(
    "TOR013",
    "another-python",
    Severity.INFO,
    why="a job started as `python train.py` runs in another environment than the one examined here",
    fix=Fix("activate the environment, or examine the other one", "gpudoctor check --python python"),
    confirm="command -v python",
    source="PATH",
)
def another_python(machine: Snapshot) -> Iterator[Evidence]:
    """`python` on PATH is of another environment than the interpreter examined.

    Silent where there is no `python` on PATH, where it is a wrapper script (pyenv), and where both are one environment.
    """
    build = machine.torch
    if build is None or build.python is None or build.path_python is None:
        return
    if build.python != build.path_python:
        yield Evidence(where="PATH", what="python", seen=build.path_python, wanted=build.python)


RULES: tuple[Rule[Snapshot], ...] = (
    no_torch,
    cpu_only_torch,
    python_unsupported,
    rocm_torch_on_nvidia,
    another_python,
)
