"""Documents that every format is tried on."""

from datetime import date

import msgspec
import pytest

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.host import Host
from gpudoctor.findings import Evidence, Finding, Fix, Severity
from gpudoctor.reports.document import Document, Ignored, NotRead, Tool, Verdict
from gpudoctor.reports.job import not_read
from gpudoctor.run import Run
from gpudoctor.snapshot import Snapshot
from tests.reports.runs import ALIKE, LATE, hang_finding, hung, loader_finding, run_of


@pytest.fixture
def well(healthy: Snapshot) -> Document:
    """Nothing to tell of the healthy machine."""
    return Document(
        tool=Tool(name="gpudoctor", version="0.1.0"),
        command="check",
        host="node1",
        verdict="ok",
        findings=(),
        not_read=(),
        snapshot=healthy,
    )


@pytest.fixture
def ill(well: Document) -> Document:
    """One of everything: several GPUs with one fault, different values, a cause, an info, an ignore, notes."""
    narrow = (_narrow(0, "x8"), _narrow(1, "x8"), _narrow(3, "x8"), _narrow(5, "x4"))
    shm = Finding(
        code="SHM001",
        name="shm-too-small",
        severity=Severity.ERROR,
        confidence="certain",
        where="/dev/shm",
        evidence=(Evidence(what="size", seen="64 MiB", wanted="8 GiB or more", source="1 GiB a GPU"),),
        why="loader workers hand over batches through /dev/shm and die with a bus error when it is full",
        fix=(
            Fix("start the container with a larger one", "docker run --shm-size=16g --rm -it image", "restarts"),
            Fix("or use the host's"),
        ),
        consequences=("ERR003", "SHM004"),
    )
    info = Finding(
        code="PRE001",
        name="tf32-off",
        severity=Severity.INFO,
        confidence="certain",
        where="",
        evidence=(Evidence(what="float32 matmul precision", seen="highest", wanted="high"),),
        why="slower",
        fix=(Fix("set it"),),
    )
    return msgspec.structs.replace(
        well,
        verdict="findings",
        findings=(shm, *narrow, info),
        not_read=(
            NotRead(subject="topology.acs_bridges", reason="needs root"),
            NotRead(subject="kernel_log", reason="needs root"),
            NotRead(subject="exposure", reason="no answer in 5 s"),
        ),
        ignored=(
            Ignored(code="GPU020", name="persistence-off", where="GPU 0", reason="known", expires=date(2027, 1, 31)),
        ),
        notes=("the policy's ignore of SHM001 ran out on 2026-11-30: a small box",),
    )


@pytest.fixture
def job(well: Document) -> Document:
    """A job of eight ranks, of which rank 3 waits for its loader and is waited for."""
    run = run_of([ALIKE] * 3 + [LATE] + [ALIKE] * 4, well.snapshot)
    return document_of(well, run, loader_finding())


@pytest.fixture
def hanging(well: Document) -> Document:
    """A job of four ranks alike, of a world of six, that stood still."""
    run = hung(run_of([ALIKE] * 4, well.snapshot))
    run = msgspec.structs.replace(run, world_size=6, missing=dict.fromkeys(("rank 4", "rank 5"), "no trace of it"))
    return document_of(well, run, hang_finding())


def document_of(well: Document, run: Run, *findings: Finding) -> Document:
    """As `profile` makes it of a run on the healthy machine."""
    verdict: Verdict = "findings" if findings else "ok"
    return msgspec.structs.replace(
        well, command="profile", verdict=verdict, findings=findings, not_read=not_read(run), run=run
    )


@pytest.fixture
def hostile(ill: Document) -> Document:
    """Words of the machine that terminals, Markdown or encoders could take for orders."""
    nasty = "\x1b[2J[red]x[/red] `a` | <b>é完</b> @user\r\n\u202e \udce9 end"
    finding = msgspec.structs.replace(
        ill.findings[0], where=nasty, evidence=(Evidence(what=nasty, seen=nasty, wanted=nasty),), why=nasty
    )
    return msgspec.structs.replace(
        ill,
        host=nasty,
        findings=(finding,),
        not_read=(NotRead(subject="gpus", reason=nasty),),
        notes=(nasty,),
    )


@pytest.fixture
def laptop(well: Document) -> Document:
    """No GPU and no torch: most subjects have no answer for the same reason."""
    missing = ("gpus", "topology", "torch_runtime")
    return msgspec.structs.replace(
        well,
        host="laptop",
        snapshot=Snapshot(host=Host(name="laptop", system="Linux"), cpu=Cpu(count=8)),
        not_read=tuple(NotRead(subject=subject, reason="no NVIDIA driver") for subject in missing),
    )


def _narrow(index: int, seen: str) -> Finding:
    return Finding(
        code="PCI001",
        name="narrow-pcie-link",
        severity=Severity.WARNING,
        confidence="likely",
        where=f"GPU {index}",
        evidence=(Evidence(what="PCIe lanes", seen=seen, wanted="x16", source="NVML API reference"),),
        why="host-to-device copies slow down in proportion",
        fix=(Fix("reseat the board or riser"),),
    )
