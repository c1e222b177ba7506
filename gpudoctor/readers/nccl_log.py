"""Read logs of NCCL (NCCL_DEBUG=INFO or WARN), of RCCL, and of torch's watchdog over them, ranks and hosts mixed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudoctor.facts.driver import Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.nccl_log import DuplicateGpu, Mismatch, NcclLog
from gpudoctor.readers import collectives
from gpudoctor.snapshot import Snapshot

NAME = "NCCL log"
MOST_WARNINGS = 50
LONGEST_LINE = 3000

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_PROCESS = re.compile(r"(?P<host>[^\s:()<>]{1,80}):(?P<pid>\d{1,9}):\d{1,9}")
_VERSION = re.compile(r"[NR]CCL version ?:? ?(\d{1,2}\.\d{1,3}[\w.+:-]{0,40})")
_TAG = re.compile(r"^\W{0,3}(?P<host>[A-Za-z][\w. -]{0,40}): ?NCCL version")
_ASKED = re.compile(
    r"(?:(?P<place>[\w.@-]{1,60})(?::[^\n$#]{0,60})?[$#>] )?[^\n]{0,120}nccl\.version\(\)[^\n]{0,40}\n"
    r"\s{0,8}\((?P<version>\d{1,2}, \d{1,3}, \d{1,3})\)"
)
MOST_ASKED = 64
_RANK = re.compile(r"\[rank(\d{1,6})\]")
_ADDRESS = re.compile(r"(?:\[\d{1,3}\])?([\w.@-]{1,20}):[\w.:%]{2,60}<\d{1,6}>")
_IB_DEVICE = re.compile(r"\[\d{1,3}\]([\w.+-]{1,60}):\d{1,3}/\w{2,10}")
_RANKS = re.compile(r"\b[nN][rR]anks (\d{1,6})")
_NODES = re.compile(r"\bnNodes (\d{1,6})")
_CHANNEL = re.compile(r"(?:Channel|Ring|Tree) \d{1,4}(?:/\d{1,4})? : .{3,80} via (?P<via>.{2,80})$")
_VARIABLE = re.compile(r"(NCCL_\w{1,60}) set by environment to (.{0,200})")
_DUPLICATE = re.compile(r"Duplicate GPU detected : rank (\d{1,6}) and rank (\d{1,6}) both on CUDA device (\w{1,16})")
_CLASH = re.compile(r"Mismatched NCCL version detected : rank \d{1,6} version \d{3,6} rank \d{1,6} version \d{3,6}")
_TRUNCATED = re.compile(r"[mM]essage truncated : receiv(?:ing|ed) (\d{1,15}) bytes instead of (\d{1,15})")
_UNEQUAL = re.compile(r"collective mismatch error,? local size (\d{1,15}) remote size (\d{1,15})")
_WORDS = (
    *(
        "NCCL",
        "RCCL",
        "NVLS",
        "nccl.version()",
        "Duplicate GPU detected",
        "essage truncated",
        "collective mismatch error",
    ),
    *("Mismatched collective detected", *collectives.WORDS),
)
"""Each line of interest holds one; torch repeats NCCL's last words without what stands before them."""


@dataclass
class _Log:
    """What has been gathered so far."""

    rccl: bool = False
    version: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    version_clash: str | None = None
    hosts: dict[str, None] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    bootstrap: dict[str, None] = field(default_factory=dict)
    sockets: dict[str, None] = field(default_factory=dict)
    no_interface: bool = False
    network: str | None = None
    plugin: str | None = None
    ib_devices: dict[str, None] = field(default_factory=dict)
    no_ib: bool = False
    channels: dict[str, int] = field(default_factory=dict)
    gpudirect: bool | None = None
    nvls: bool | None = None
    nvls_error: str | None = None
    warnings: dict[str, None] = field(default_factory=dict)
    duplicates: dict[tuple[str, str, str], None] = field(default_factory=dict)
    mismatches: dict[str, Mismatch] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    cuda_driver: str | None = None
    wants_passthrough: bool = False
    lines: int = 0


def read(text: str) -> Snapshot | None:
    """None where no line is of NCCL, RCCL or the watchdog."""
    if not any(word in text for word in _WORDS):
        return None
    log = _Log()
    watched = collectives.Watched()
    for line in _lines(text):
        _read_line(log, line)
        watched.take(line)
    _read_asked(log, text)
    timeouts = watched.timeouts()
    mismatches = (*log.mismatches.values(), *watched.mismatches.values(), *collectives.different(timeouts))
    told = (log.lines, log.version, log.version_clash, log.duplicates, log.nvls_error, timeouts, mismatches)
    if not any(told):
        return None
    facts = NcclLog(
        rccl=log.rccl,
        version=log.version,
        versions=log.versions,
        version_clash=log.version_clash,
        hosts=tuple(log.hosts),
        node_count=max([*log.nodes, len(log.hosts)]) or None,
        world_size=max(log.ranks, default=None),
        bootstrap_interfaces=tuple(log.bootstrap),
        socket_interfaces=tuple(log.sockets),
        no_interface=log.no_interface,
        network=log.network,
        plugin=log.plugin,
        ib_devices=tuple(log.ib_devices) if log.ib_devices or log.no_ib else None,
        gpudirect=log.gpudirect,
        channels=log.channels,
        nvls=log.nvls,
        nvls_error=log.nvls_error,
        wants_passthrough=log.wants_passthrough,
        warnings=tuple(log.warnings),
        duplicates=tuple(
            DuplicateGpu(ranks=(int(first), int(second)), device=device) for first, second, device in log.duplicates
        ),
        timeouts=timeouts,
        mismatches=mismatches,
        late_ranks=tuple(sorted(watched.late)),
    )
    return Snapshot(
        nccl_log=facts,
        driver=Driver(cuda_version=log.cuda_driver) if log.cuda_driver and not log.rccl else None,
        environment=Environment(variables=log.variables) if log.variables else None,
    )


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if any(word in line for word in _WORDS):
            plain = line[:LONGEST_LINE]
            yield _COLOUR.sub("", plain) if "\x1b" in plain else plain


def _read_line(log: _Log, line: str) -> None:
    head, level, message = _parts(line)
    process = _process(head) if level else None
    host = process[0] if process else None
    if level:
        log.lines += 1
    if host is not None:
        log.hosts.setdefault(host)
    if match := _VERSION.search(line):
        _take_version(log, match[1], line, host)
    if match := _DUPLICATE.search(line):
        log.duplicates.setdefault((match[1], match[2], match[3]))
    if match := _CLASH.search(line):
        log.version_clash = log.version_clash or match.group()
    if "Multicast" in line and "Failed to bind NVLink SHARP" in line:
        log.nvls_error = log.nvls_error or line[line.index("Failed to bind") :].strip()
    _read_mismatch(log, line)
    if level == "WARN":
        _read_warning(log, head, message)
    elif level == "INFO":
        _read_info(log, message)


def _parts(line: str) -> tuple[str, str, str]:
    """What stands before `NCCL`, its level (empty where this is no line of NCCL's own), and the message."""
    for level in ("INFO", "WARN"):
        head, found, message = line.partition(f"NCCL {level} ")
        if found:
            return head, level, message.strip()
    return line, "", ""


def _process(head: str) -> tuple[str, str] | None:
    """Host and pid, of the last token of the form host:pid:thread."""
    for token in reversed(head[-400:].split()):
        if len(token) <= 110 and (match := _PROCESS.fullmatch(token)):
            return match["host"], match["pid"]
    return None


def _take_version(log: _Log, version: str, line: str, host: str | None) -> None:
    version = version.rstrip(".,:")
    log.rccl = log.rccl or "RCCL version" in line
    log.version = log.version or version
    tag = _TAG.match(line)
    rank = _RANK.search(line)
    place = host or (tag["host"] if tag else None) or (f"rank {rank[1]}" if rank else None)
    if place is not None:
        # The last run of a host counts.
        log.versions[place] = version


def _read_asked(log: _Log, text: str) -> None:
    """`torch.cuda.nccl.version()`, typed on one node or several; the prompt names the node."""
    place = text.find("nccl.version()")
    for _ in range(MOST_ASKED):
        if place < 0:
            return
        start = max(text.rfind("\n", 0, place) + 1, place - 200)
        if match := _ASKED.match(text, start, place + 100):
            version = match["version"].replace(", ", ".")
            log.version = log.version or version
            if match["place"]:
                log.versions.setdefault(match["place"].rpartition("@")[2], version)
        place = text.find("nccl.version()", place + 1)


def _read_warning(log: _Log, head: str, message: str) -> None:
    if len(log.warnings) < MOST_WARNINGS:
        log.warnings.setdefault(message[:300])
    file = head.split()[-1] if head.split() else ""
    if ("nvls" in file or "NVLS" in message) and re.search(r"fail|error", message, re.IGNORECASE):
        log.nvls_error = log.nvls_error or f"{file} {message}".strip()
    if "no socket interface found" in message:
        log.no_interface = True
    if '"iommu=pt"' in message:
        log.wants_passthrough = log.rccl = True


def _read_mismatch(log: _Log, line: str) -> None:
    if match := _TRUNCATED.search(line):
        received, expected = int(match[1]), int(match[2])
        seen = f"a message of {received} bytes where {expected} were expected"
        log.mismatches.setdefault(
            seen, Mismatch(seen=seen, bytes_received=received, bytes_expected=expected, certain=False)
        )
    elif match := _UNEQUAL.search(line):
        local, remote = int(match[1]), int(match[2])
        seen = f"a message of {remote} bytes where {local} were expected"
        log.mismatches.setdefault(seen, Mismatch(seen=seen, bytes_received=remote, bytes_expected=local, certain=False))
    elif "Mismatched collective detected" in line:
        words = line[line.index("Mismatched collective") :][:200].strip()
        log.mismatches.setdefault(words, Mismatch(seen=words))


def _read_info(log: _Log, message: str) -> None:
    if message.startswith("Bootstrap"):
        log.bootstrap.update(dict.fromkeys(_ADDRESS.findall(message)))
    elif message.startswith("NET/Socket"):
        log.sockets.update(dict.fromkeys(_ADDRESS.findall(message)))
    elif message.startswith("NET/IB"):
        log.ib_devices.update(dict.fromkeys(_IB_DEVICE.findall(message)))
        log.no_ib = log.no_ib or "No device found" in message
    elif "libibverbs.so" in message and "Failed to open" in message:
        log.no_ib = True
    elif message.startswith("Using network "):
        log.network = message.removeprefix("Using network ").strip()
    elif "Loaded net plugin " in message:
        log.plugin = message.partition("Loaded net plugin ")[2].strip()
    elif message.startswith("cudaDriverVersion ") and message.split()[1].isdecimal():
        number = int(message.split()[1][:6])
        log.cuda_driver = f"{number // 1000}.{number % 1000 // 10}"
    elif "RCCL version" in message or message.startswith("Librccl"):
        log.rccl = True
    elif message.startswith("NVLS multicast support is "):
        log.nvls = "not available" not in message
    elif match := _VARIABLE.match(message):
        log.variables[match[1]] = match[2].strip().rstrip(".")
    elif match := _CHANNEL.search(message):
        _take_channel(log, match["via"])
    log.ranks += [int(count) for count in _RANKS.findall(message)]
    log.nodes += [int(count) for count in _NODES.findall(message)]


def _take_channel(log: _Log, via: str) -> None:
    kind = "SHM" if "shared memory" in via else via.partition("/")[0].split()[0]
    log.channels[kind] = log.channels.get(kind, 0) + 1
    if via.startswith("NET/IB"):
        log.gpudirect = bool(log.gpudirect) or "GDRDMA" in via
