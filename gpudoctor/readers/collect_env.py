"""Read what `python -m torch.utils.collect_env` prints (torch 1.3 to 2.15), and vLLM's script made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.libraries import Libraries, SystemLibrary
from gpudoctor.facts.packages import Packages
from gpudoctor.facts.torch import TorchBuild, TorchRuntime
from gpudoctor.readers import lscpu, wheels
from gpudoctor.readers.wheels import Installed
from gpudoctor.snapshot import Snapshot

NAME = "collect_env"
MOST_PACKAGES = 20_000

NOT_IMPORTED = "collect_env could not import torch (it prints N/A for it)"
NO_ANSWER = "nvidia-smi gave no answer"

KEYS = (
    *("PyTorch version", "Is debug build", "CUDA used to build PyTorch", "ROCM used to build PyTorch"),
    *("XPU used to build PyTorch", "OS", "GCC version", "Clang version", "Libc version", "Python version"),
    *("Python platform", "Is CUDA available", "CUDA runtime version", "CUDA_MODULE_LOADING set to"),
    *("GPU models and configuration", "Nvidia driver version", "cuDNN version", "HIP runtime version"),
    *("MIOpen runtime version", "Is XNNPACK available"),
)
_KEY = re.compile(rf"^[\s*#>-]{{0,12}}({'|'.join(KEYS)})\s{{0,40}}: ?(.*)$")
OWN = frozenset(KEYS) - {"OS", "GCC version", "Clang version", "Libc version", "Python version", "Python platform"}
"""Keys that nothing else prints."""
LISTS = ("GPU models and configuration", "cuDNN version")
"""Keys whose value may go on in the lines below."""

_PACKAGE = re.compile(
    r"^[\s>]{0,12}\[(pip3?|conda)\]\s{1,8}(\S{1,100}?)(?:==|\s{1,60})(\S{1,100})(?:\s{1,60}(\S{1,80}))?(?:\s{1,20}\S{1,80})?\s*$"
)
_PIP_SAYS = re.compile(r"^[\s>]{0,12}\[pip3?\]\s{1,8}\S{1,100}==", re.MULTILINE)
_BOARD = re.compile(r"^\s{0,16}GPU (\d{1,3}): (\S.{0,100}?)\s*$")
_MACHINES = "x86_64|aarch64|arm64|ppc64le|i686|riscv64|s390x"
_KERNEL = re.compile(rf"Linux-(\S{{1,120}}?)-({_MACHINES})(?:-|$)")
_PYTHON = re.compile(r"(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?:(?:a|b|rc)\d{1,2})?)")
_CUDNN = re.compile(r"(/\S{1,300}libcudnn\.so(?:\.(\d[\d.]{0,20}))?)")
_BOARDS_OF_AMD = re.compile(r"\(gfx\w{3,8}|\bAMD\b|Radeon|Instinct")
EMPTY = frozenset({"Could not collect", "N/A", "No CUDA", "None", ""})


def read(text: str) -> Snapshot | None:
    """The last report in a text; a part of one will do, and what is cut off is unknown."""
    if not any(key in text for key in OWN):
        return None
    told, rest = _keys(text)
    listed = tuple(_packages(text))
    if len(OWN & set(told)) < 2 and not (listed and OWN & set(told)):
        return None
    host = _host(told)
    build = _torch(told, listed, host)
    runtime = _runtime(told, rest)
    return Snapshot(
        host=host,
        gpus=_gpus(told, rest),
        driver=_driver(told, rest, host, build, runtime),
        torch=build,
        torch_runtime=runtime,
        packages=_packages_fact(told, listed, host),
        libraries=_libraries(told, rest, listed),
        cpu=lscpu.read_cpu(text),
    )


def _keys(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Key → value, and of the keys with lists the lines below; a later report replaces an earlier one."""
    told: dict[str, str] = {}
    rest: dict[str, list[str]] = {}
    going_on: list[str] | None = None
    for line in text.splitlines():
        if ":" in line and (match := _KEY.match(line[:400])):
            key, value = match[1], match[2].strip()
            if key == "PyTorch version":
                told = {name: old for name, old in told.items() if name not in OWN}
                rest = {}
            told[key] = value
            going_on = rest.setdefault(key, []) if key in LISTS else None
            if going_on is not None:
                going_on.clear()
        elif going_on is not None:
            if line.strip() and len(going_on) < 300:
                going_on.append(line)
            else:
                going_on = None
    return told, rest


def _value(told: dict[str, str], key: str) -> str | None:
    """None where it is missing or says that there is none."""
    value = told.get(key, "")
    return None if value in EMPTY else value


def _packages(text: str) -> Iterator[Installed]:
    """pip's first: conda lists what pip installed as well."""
    if "[pip" not in text and "[conda" not in text:
        return
    later: list[Installed] = []
    for count, line in enumerate(line for line in text.splitlines() if "[pip" in line or "[conda]" in line):
        match = _PACKAGE.match(line[:400]) if count < MOST_PACKAGES else None
        if match is None or (match[2], match[3]) == ("Could", "not"):
            continue
        item = Installed(wheels.normal(match[2]), match[3], (match[4] or "") if match[1] == "conda" else "")
        if match[1] == "conda":
            later.append(item if not item.build.startswith("pypi") else item._replace(build=""))
        else:
            yield item
    yield from later


def _host(told: dict[str, str]) -> Host | None:
    name, platform = _value(told, "OS"), _value(told, "Python platform") or ""
    if name is None and not platform:
        return None
    words = f"{name or ''} {platform}"
    system = (
        "Windows" if "Windows" in words else "Darwin" if re.search(r"mac ?OS|Darwin", words, re.IGNORECASE) else None
    )
    kernel = _KERNEL.search(platform)
    system = system or ("Linux" if kernel or name else None)
    where = re.fullmatch(rf"(.{{1,120}}?)(?: \(({_MACHINES})\))?", name or "")
    machine = kernel[2] if kernel else where[2] if where else None
    libc = _value(told, "Libc version") or ""
    release = kernel[1] if kernel else None
    return Host(
        system=system,
        kernel=release,
        machine=machine,
        distribution=where[1] if where and name else None,
        wsl="microsoft" in release.lower() if release else None,
        glibc=libc.removeprefix("glibc-") if libc.startswith("glibc-") else None,
    )


def _torch(told: dict[str, str], listed: tuple[Installed, ...], host: Host | None) -> TorchBuild | None:
    packaged = wheels.torch(listed)
    version = _value(told, "PyTorch version")
    python = _python(told)
    if version is None:
        # Without it and with a list of packages that has none, it is not installed; without a list, nobody knows.
        absent = told.get("PyTorch version") == "N/A" and bool(listed)
        if packaged is None and not absent and python is None:
            return None
        return _with(packaged or TorchBuild(installed=False if absent else None), python)
    cuda, rocm = _value(told, "CUDA used to build PyTorch"), _value(told, "ROCM used to build PyTorch")
    by_version = wheels.told_by_version(version)
    build = (
        "rocm" if rocm else "cuda" if cuda else "xpu" if _value(told, "XPU used to build PyTorch") else by_version[2]
    )
    if build is None and "CUDA used to build PyTorch" in told:
        build = "mps" if host is not None and host.system == "Darwin" else "cpu"
    cuda = cuda or by_version[0]
    machine = host.machine if host is not None else None
    linux = host is not None and host.system == "Linux"
    return _with(
        TorchBuild(
            installed=True,
            version=version,
            cuda=cuda if build == "cuda" else None,
            rocm=(rocm or by_version[1]) if build == "rocm" else None,
            build=build,
            arch_list=wheels.arch_list(version, cuda, machine) if linux and build == "cuda" else None,
        ),
        python,
    )


def _with(build: TorchBuild, python: str | None) -> TorchBuild:
    tag = "cp" + "".join(python.split(".")[:2]) if python else None
    return msgspec.structs.replace(build, python_version=python, python_tag=tag)


def _python(told: dict[str, str]) -> str | None:
    match = _PYTHON.match(told.get("Python version", ""))
    return match[1] if match else None


def _runtime(told: dict[str, str], rest: dict[str, list[str]]) -> TorchRuntime | None:
    if told.get("PyTorch version") == "N/A":
        return TorchRuntime(stage="import", error=NOT_IMPORTED)
    version = _value(told, "PyTorch version")
    available = {"True": True, "Yes": True, "False": False, "No": False}.get(told.get("Is CUDA available", ""))
    if version is None and available is None:
        return None
    rocm = _value(told, "ROCM used to build PyTorch")
    names = _board_names(told, rest)
    return TorchRuntime(
        stage="cuda",
        version=version,
        cuda=_value(told, "CUDA used to build PyTorch") if not rocm else None,
        rocm=rocm,
        cuda_available=available,
        device_names=tuple(names.values()) or None,
    )


def _board_names(told: dict[str, str], rest: dict[str, list[str]]) -> dict[int, str]:
    """`GPU 0: NVIDIA H100 …` a line, as `nvidia-smi -L` lists them; on ROCm one bare name."""
    first = _value(told, "GPU models and configuration")
    lines = [first or "", *rest.get("GPU models and configuration", [])]
    found = {int(match[1]): match[2] for line in lines if (match := _BOARD.match(line))}
    return found or ({0: first} if first else {})


def _gpus(told: dict[str, str], rest: dict[str, list[str]]) -> Gpus | None:
    """NVIDIA's boards alone: AMD's are not what the driver of NVIDIA lists."""
    names = _board_names(told, rest)
    ours = {index: name for index, name in names.items() if not _BOARDS_OF_AMD.search(name)}
    if not ours or _value(told, "ROCM used to build PyTorch"):
        return None
    return Gpus(boards=tuple(Gpu(index=index, name=ours[index]) for index in sorted(ours)), source="text")


def _driver(
    told: dict[str, str],
    rest: dict[str, list[str]],
    host: Host | None,
    build: TorchBuild | None,
    runtime: TorchRuntime | None,
) -> Driver | None:
    """Its version, or that nvidia-smi gave none: then its boards are missing too.

    From 610 on nvidia-smi names its version in other words, which collect_env does not know.
    """
    tegra = True if host is not None and "tegra" in (host.kernel or "") else None
    version = _value(told, "Nvidia driver version")
    if version is not None:
        return Driver(module_version=version, library_version=version, tegra=tegra)
    if host is not None and host.system == "Darwin":
        return None
    asked = {"Nvidia driver version", "GPU models and configuration"} <= set(told)
    boards = _board_names(told, rest)
    works = runtime is not None and runtime.cuda_available
    if not asked or boards or works or (build is not None and build.build == "rocm"):
        return Driver(tegra=tegra) if tegra else None
    return Driver(nvml_error=NO_ANSWER, tegra=tegra)


def _packages_fact(told: dict[str, str], listed: tuple[Installed, ...], host: Host | None) -> Packages | None:
    found = wheels.packages(listed)
    compilers: tuple[str, ...] | None = None
    if "GCC version" in told and "Clang version" in told and host is not None and host.system == "Linux":
        # collect_env asks `gcc --version` and `clang --version`.
        names = (("gcc", "GCC version"), ("clang", "Clang version"))
        compilers = tuple(name for name, key in names if _value(told, key) is not None)
    return Packages(installed=found, compilers=compilers) if found or compilers is not None else None


def _libraries(told: dict[str, str], rest: dict[str, list[str]], listed: tuple[Installed, ...]) -> Libraries | None:
    found = wheels.libraries(listed)
    cudnn = [
        SystemLibrary(library="cudnn", path=match[1], version=match[2], via="ldconfig")
        for line in (told.get("cuDNN version", ""), *rest.get("cuDNN version", []))
        if (match := _CUDNN.search(line))
    ]
    nvcc = _value(told, "CUDA runtime version")
    if not found and not cudnn and nvcc is None:
        return None
    return Libraries(wheels=found if listed else None, system=tuple(cudnn) or None, nvcc_version=nvcc)
