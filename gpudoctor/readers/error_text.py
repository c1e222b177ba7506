"""Read tracebacks and error texts: which known messages are in them, and what each proves of the machine.

What a message proves goes to the subject that has a field for it (a CUDA error number to the driver, a list of
architectures to torch); every recognised message stands in `errors` as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.errors import Errors, ErrorText
from gpudoctor.facts.network import Network
from gpudoctor.facts.packages import Package, Packages
from gpudoctor.facts.precision import Precision
from gpudoctor.facts.shm import Shm
from gpudoctor.facts.torch import LoadedVersion, TorchBuild, TorchRuntime
from gpudoctor.readers import import_error
from gpudoctor.rules.sizes import GIB, KIB, MIB, TIB
from gpudoctor.snapshot import Snapshot
from gpudoctor.tables import error_texts
from gpudoctor.tables.error_texts import Text

NAME = "error text"
MOST_LOOKED_AT = 128
"""Lines looked at closely for one wording, half from the start and half from the end: a log can hold millions."""
MOST_OF_A_KIND = 64
BEFORE, AFTER, SHOWN = 400, 1500, 300
"""Characters taken of a line before the needle, after it (with the lines that follow), and kept for people."""

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_MARKS = re.compile(r"\n(?:[>|] ?){1,4}|\n?\[(?:rank|default)\d{1,6}\]: ?")
_RANK = re.compile(r"\[(?:rank|default|Rank )(\d{1,6})\]")
_SIZE = re.compile(r"([\d.]{1,20}) ?([KMGT])?i?[Bb]?")
_UNITS = {None: 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_CONTAINER = re.compile(r"\b(docker|podman|nerdctl) run\b(?P<options>[^\n]{0,600})")
_WITH_GPUS = re.compile(r"--gpus|--runtime[= ]nvidia|--device[= ]\S*nvidia|NVIDIA_VISIBLE_DEVICES")


def read(text: str) -> Snapshot | None:
    """What the messages in a text prove; None where none is known."""
    plain = _COLOUR.sub("", text) if "\x1b" in text else text
    found = tuple(_recognised(plain))
    loaded = import_error.read(plain)
    if not found and loaded is None:
        return None
    errors = Errors(recognised=found)
    runtime = _torch_runtime(errors)
    packages = _packages(errors)
    if loaded is not None:
        runtime = _joined(runtime, loaded.torch_runtime)
        packages = _with_packages(packages, loaded.packages)
    return Snapshot(
        errors=errors if found else None,
        driver=_driver(errors),
        torch=_torch(errors),
        torch_runtime=runtime,
        packages=packages,
        libraries=loaded.libraries if loaded is not None else None,
        shm=_shm(errors),
        network=_network(errors),
        container=_container(errors, plain),
    )


def _recognised(text: str) -> Iterator[ErrorText]:
    """Each message once a rank, in the order of the text."""
    seen: dict[tuple[str, int | None, tuple[str, ...]], tuple[int, ErrorText]] = {}
    counted: set[tuple[str, int]] = set()
    windows: dict[tuple[int, int], str] = {}
    kinds: dict[str, int] = {}
    for row in error_texts.load().text:
        for place in _places(text, row.needle):
            message = _message(text, place, row, windows)
            if message is None:
                continue
            key = (message.kind, message.rank, tuple(message.words.values()))
            if key in seen:
                first, known = seen[key]
                # Two wordings may fit one line.
                more = 0 if (message.kind, text.rfind("\n", 0, place)) in counted else 1
                numbers = {**message.numbers, **known.numbers}
                known = msgspec.structs.replace(known, numbers=numbers, count=known.count + more)
                seen[key] = (min(first, place), known)
            elif kinds.get(message.kind, 0) < MOST_OF_A_KIND:
                kinds[message.kind] = kinds.get(message.kind, 0) + 1
                seen[key] = (place, message)
            counted.add((message.kind, text.rfind("\n", 0, place)))
    yield from (message for _, message in sorted(seen.values(), key=lambda item: item[0]))


def _places(text: str, needle: str) -> Iterator[int]:
    """Where the needle stands, once a line: the first ones, then the last ones."""
    place, last = text.find(needle), -1
    for _ in range(MOST_LOOKED_AT // 2):
        if place < 0:
            return
        yield (last := place)
        end = text.find("\n", place)
        place = text.find(needle, end) if end >= 0 else -1
    place = text.rfind(needle)
    for _ in range(MOST_LOOKED_AT // 2):
        if place <= last:
            return
        yield place
        start = text.rfind("\n", last, place)
        place = text.rfind(needle, 0, start) if start >= 0 else -1


def _message(text: str, place: int, row: Text, windows: dict[tuple[int, int], str]) -> ErrorText | None:
    """`windows` keeps the prepared stretches of text, since several wordings may ask for the same one."""
    start = max(text.rfind("\n", 0, place) + 1, place - BEFORE)
    stop = place + AFTER if place - start > BEFORE // 2 else start + AFTER
    window = windows.get((start, stop))
    if window is None:
        window = windows[start, stop] = " ".join(_MARKS.sub(" ", text[start:stop]).split())
    end = text.find("\n", place)
    line = text[start : end if end >= 0 else len(text)][: BEFORE + AFTER].strip()
    match = error_texts.compiled(row.pattern).search(window)
    if match is None or match.start() > len(line):  # the latter is another message, below this line
        return None
    groups = {name: value for name, value in match.groupdict().items() if value is not None}
    near = window[match.start() :]
    for pattern in row.also:
        if more := error_texts.compiled(pattern).search(near):
            groups = {**more.groupdict(), **groups}
    rank = _RANK.search(line)
    numbers = {name: number for name, value in groups.items() if (number := _number(name, value)) is not None}
    if row.error is not None:
        numbers.setdefault("cuda_error", row.error)
    return ErrorText(
        kind=row.kind,
        line=line[:SHOWN],
        rank=int(rank[1]) if rank else numbers.pop("rank", None),
        numbers=numbers,
        words={name: value.strip() for name, value in groups.items() if name not in numbers and name != "rank"},
    )


def _number(name: str, value: str) -> int | None:
    """Sizes in bytes, whole numbers as they are; None for words."""
    if name.endswith("_bytes") and (size := _SIZE.match(value)) and size[1].replace(".", "", 1).isdecimal():
        return int(float(size[1]) * _UNITS[size[2]])
    return int(value) if value.isdecimal() and len(value) < 19 else None


def _driver(errors: Errors) -> Driver | None:
    start = errors.of("cuda_start", "driver_too_old")
    nvml, nothing = errors.of("nvml"), errors.of("no_driver")
    toolkit = [text for text in errors.of("container_refused") if "detail" in text.words]
    if not (start or nvml or nothing or toolkit):
        return None
    old = errors.of("driver_too_old")
    said = [text.words["reason"] for text in (*nvml, *nothing)]
    said += [text.words["detail"] for text in toolkit]
    libraries = [text.words["library_version"] for text in nvml if "library_version" in text.words]
    return Driver(
        # The last state counts: a paste tells a story.
        cuda_error=start[-1].numbers.get("cuda_error") if start else None,
        cuda_error_text=start[-1].words["reason"] if start else None,
        cuda_version=_cuda_version(old[-1].numbers["cuda_found"]) if old else None,
        nvml_error=said[-1] if said else None,
        library_version=libraries[-1] if libraries else None,
    )


def _cuda_version(number: int) -> str:
    """`12.8` of 12080."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _torch(errors: Errors) -> TorchBuild | None:
    if errors.of("cpu_only_torch"):
        return TorchBuild(installed=True, build="cpu")
    if any("cudaGetDeviceCount" in text.line for text in errors.of("cuda_start")) or errors.of("driver_too_old"):
        return TorchBuild(installed=True, build="cuda")  # no other build calls that
    return TorchBuild(installed=False) if errors.of("no_torch") else None


def _torch_runtime(errors: Errors) -> TorchRuntime | None:
    """What torch itself said of CUDA's start, of the cards and of its libraries."""
    said = [text for text in errors.of("cuda_start", "driver_too_old", "no_driver") if _is_torchs(text)]
    images, cards = errors.of("no_kernel_image"), _cards(errors)
    symbols, versions = errors.of("cudnn_symbol"), errors.of("cudnn_mismatch")
    wanted = "tf32" if errors.of("tf32_refused") else "bf16" if errors.of("bf16_refused") else None
    if not (said or images or cards or symbols or versions or wanted):
        return None
    shown = said[-1] if said else images[-1] if images else None
    return TorchRuntime(
        cuda_available=False if said else None,
        cuda_error=shown.words["reason"] if shown else None,
        cuda_error_code=said[-1].numbers.get("cuda_error") if said else None,
        arch_list=_arch_list(errors),
        capabilities=tuple(cards.values()) or None,
        device_names=tuple(cards) or None,
        error=symbols[-1].words["reason"] if symbols else None,
        libraries=tuple(
            LoadedVersion(name="cudnn", compiled=_dotted(text, "compiled"), loaded=_dotted(text, "loaded"))
            for text in versions[-1:]
        )
        or None,
        precision=Precision(wanted=wanted) if wanted else None,
    )


def _is_torchs(text: ErrorText) -> bool:
    """Of torch rather than another program (numba, nccl-tests, …)."""
    return text.kind != "cuda_start" or any(
        words in text.line for words in ("cudaGetDeviceCount()", "CUDA initialization", "RuntimeError", "THCGeneral")
    )


def _dotted(text: ErrorText, name: str) -> str:
    return text.words[name].replace(", ", ".")


def _cards(errors: Errors) -> dict[str, str]:
    """Name → compute capability, `12.0`, of the cards that messages describe."""
    cards: dict[str, str] = {}
    for text in errors.of("arch_not_built", "device_properties", "bf16_refused"):
        name = text.words.get("name")
        if name is None:
            continue
        if "major" in text.numbers:
            cards[name] = f"{text.numbers['major']}.{text.numbers['minor']}"
        elif "capability" in text.words:
            cards[name] = text.words["capability"]
        elif "capability" in text.numbers:
            cards[name] = f"{text.numbers['capability'] // 10}.{text.numbers['capability'] % 10}"
    return cards


def _arch_list(errors: Errors) -> tuple[str, ...] | None:
    """As torch prints it, else the bounds of it that older and newer versions print instead."""
    texts = errors.of("arch_not_built")
    if whole := next((text.words["arch_list"] for text in texts if "arch_list" in text.words), None):
        return tuple(whole.split())
    for text in texts:
        bounds = [text.words[name] for name in ("lowest", "highest") if name in text.words]
        if bounds:
            return tuple(dict.fromkeys(f"sm_{bound.replace('.', '')}" for bound in bounds))
    return None


def _joined(runtime: TorchRuntime | None, imported: TorchRuntime | None) -> TorchRuntime | None:
    """Both tell of different stages, so no field is in both."""
    if runtime is None or imported is None:
        return runtime or imported
    told = {
        name: value for name, value in msgspec.structs.asdict(imported).items() if value not in (None, (), {}, False)
    }
    return msgspec.structs.replace(runtime, **told)


def _packages(errors: Errors) -> Packages | None:
    installed: dict[str, Package] = {}
    for text in errors.of("no_operators"):
        name = text.words.get("package", "torchvision")
        installed[name] = Package(name=name, compiled=True, imported=False, import_error=text.words["reason"])
    for text in errors.of("other_build"):
        name = text.words["package"].lower()
        installed[name] = Package(name=name, compiled=True, imported=False, import_error=text.words["reason"])
    for text in errors.of("numpy_abi"):
        version = text.words.get("version")
        installed["numpy"] = Package(name="numpy", version=version, import_error=text.words["reason"])
    return Packages(installed=tuple(installed.values())) if installed else None


def _with_packages(packages: Packages | None, imported: Packages | None) -> Packages | None:
    if packages is None or imported is None:
        return packages or imported
    return msgspec.structs.replace(packages, installed=packages.installed + imported.installed)


def _shm(errors: Errors) -> Shm | None:
    sizes = [text.numbers["size_bytes"] for text in errors.of("shm_refused") if "size_bytes" in text.numbers]
    return Shm(refused_bytes=sizes[-1]) if sizes else None


def _network(errors: Errors) -> Network | None:
    nameless, master = errors.of("host_name_unresolvable"), errors.of("master_unresolvable")
    if not (nameless or master):
        return None
    return Network(
        host_addresses=() if nameless else None,
        master_addr=master[-1].words.get("host") if master else None,
        master_addresses=() if master else None,
        master_error=master[-1].words.get("reason") if master else None,
    )


def _container(errors: Errors, text: str) -> Container | None:
    """An engine's refusal, which is the host's; or a container started without GPUs in which no driver is found."""
    if refused := errors.of("container_refused"):
        return Container(runtime_error=refused[-1].words["reason"])
    if not errors.of("no_driver", "nvml"):
        return None
    started = _CONTAINER.search(text)
    if started is None or _WITH_GPUS.search(started["options"]):
        return None
    return Container(kind="containerd" if started[1] == "nerdctl" else started[1])
