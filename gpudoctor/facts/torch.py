"""The torch installation: what its files say, and what an import of it says."""

from gpudoctor.facts.base import Fact, Subject
from gpudoctor.facts.precision import Precision


class TorchBuild(Subject, frozen=True, kw_only=True):
    """Read from files, without importing torch."""

    installed: bool | None = None
    version: str | None = None
    """With its local part, such as `2.11.0+cu130`."""
    cuda: str | None = None
    """CUDA it was built for, such as `13.0`; None for a CPU build (see `build`)."""
    rocm: str | None = None
    build: str | None = None
    """`cuda`, `cpu`, `rocm`, `xpu` or `mps`; None where version.py does not tell."""
    path: str | None = None
    """Folder of the package."""
    python: str | None = None
    """The interpreter examined."""
    python_version: str | None = None
    python_tag: str | None = None
    """Of the interpreter, as wheels name it: `cp311`, `cp313t` (free-threaded)."""
    python_tags: tuple[str, ...] = ()
    """Of the wheel, such as `cp311-cp311-manylinux_2_28_x86_64`; empty where not installed from a wheel."""
    path_python: str | None = None
    """The interpreter that `python` on PATH means: the same text as `python` where both are of one environment;
    None where there is none, or where it is a wrapper script (a pyenv shim)."""
    arch_list: tuple[str, ...] | None = None
    """GPU code in the wheel (`sm_90`, `compute_90`) as the table of releases has it; None where the build is no
    official one. What torch itself says is in TorchRuntime."""
    pins: dict[str, str] = {}
    """Library (`cudnn`, `nccl`, `cublas`, `nvjitlink`, `cudart`) → version the wheel's metadata requires exactly."""
    shadowed_by: str | None = None
    """A file or folder named torch in the working folder, or on the path before the installed package."""


class LoadedVersion(Fact, frozen=True, kw_only=True):
    """A library torch uses: what it was compiled against, and what it found at run time."""

    name: str
    """`cudnn`, `nccl`, `cublas`, `nvjitlink`, `cudart`, `cuda` (the driver's libcuda)."""
    compiled: str | None = None
    """Given with as many parts as the library itself can tell: `12.8` for nvJitLink, `9.10.2` for cuDNN."""
    loaded: str | None = None
    path: str | None = None
    """The file mapped into the process."""


class SmokeTest(Fact, frozen=True, kw_only=True):
    """Allocate, multiply, compare on one GPU."""

    device: int = 0
    ok: bool
    error: str | None = None
    relative_error: float | None = None
    duration_ms: float | None = None


class TorchRuntime(Subject, frozen=True, kw_only=True):
    """Read by importing torch in a child of the interpreter examined. `stage` is the last one begun."""

    stage: str | None = None
    """`start`, `import`, `versions`, `cuda`, `devices`, `libraries`, `smoke` or `done`."""
    error: str | None = None
    """The exception (`ImportError: …`) where a stage raised, else the last words on standard error where it died."""
    traceback: str | None = None
    """Of that exception; where it died or hung, the stacks it left on standard error."""
    signal: int | None = None
    """Number of the signal it died by."""
    timed_out: bool = False
    """It was ended at the deadline."""
    busy: bool | None = None
    """At the deadline it still computed or read from disk: slow rather than hung. None without a deadline or /proc."""
    import_s: float | None = None
    path: str | None = None
    """The file that was imported as torch."""
    version: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    """torch.version.hip; None in builds for NVIDIA or CPUs."""
    cuda_available: bool | None = None
    device_count: int | None = None
    cuda_error: str | None = None
    """Text of the error that CUDA's start gave (the warning of is_available, or the exception)."""
    cuda_error_code: int | None = None
    arch_list: tuple[str, ...] | None = None
    """torch.cuda.get_arch_list(), empty in a CPU build."""
    capabilities: tuple[str, ...] | None = None
    """Compute capability of each visible device, such as `9.0`."""
    device_names: tuple[str, ...] | None = None
    libraries: tuple[LoadedVersion, ...] | None = None
    mapped: tuple[str, ...] | None = None
    """CUDA libraries in /proc/self/maps after the import and the smoke test."""
    smoke: tuple[SmokeTest, ...] | None = None
    """In the order of devices; those that did not finish in time are named in `unread`."""
    sdpa_backends: tuple[str, ...] | None = None
    """Allowed for scaled_dot_product_attention and built in: `flash`, `efficient`, `math`, `cudnn`."""
    cxx11_abi: bool | None = None
    torch_threads: int | None = None
    mps_available: bool | None = None
    precision: Precision | None = None
