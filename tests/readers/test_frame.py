"""Taking pastes apart; and whatever the text, an answer in time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.findings import diagnose
from gpudoctor.readers.frame import Reading, clean, decode, read
from gpudoctor.readers.tools import READERS
from gpudoctor.rules import MACHINE_RULES
from gpudoctor.snapshot import Snapshot

TABLE = """\
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|   0  NVIDIA H200                    On  |   00000000:18:00.0 Off |                    0 |
| N/A   31C    P0             76W /  700W |       0MiB / 143771MiB |      0%      Default |
|    0   N/A  N/A     26598      C   python     2885MiB |
"""
REPORT = (
    "PyTorch version: 2.8.0+cu128\nCUDA used to build PyTorch: 12.8\nIs CUDA available: True\n[pip3] torch==2.8.0\n"
)
ISSUE = f"""\
Hi, my job **hangs**.

```text
{REPORT}```

<details>

```
{TABLE}```
</details>

```
$ lsmod | head -2
Module                  Size  Used by
nvidia_uvm           1540096  0
```
"""
PIECES = (
    ISSUE,
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tPIX\t0-3\t0\nGPU1\tSYS\t X \tSYS\t4-7\t1\n",
    "    Remapped Rows\n        Pending                           : Yes\n        Uncorrectable Error : 4\n",
    "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n",
    "NVRM: Xid (PCI:0000:9c:00): 48, pid=1, name=python, DBE\n",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.86  x\n",
    "node1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nNCCL version 2.21.5+cuda12.4\n",
    "RuntimeError: CUDA error: out of memory\nImportError: /a/torch/lib/libx.so: undefined symbol: ncclMemFree\n",
    "Package Version\n------- -------\ntorch 2.8.0\n\nCPU(s): 8\nModel name: x\nCore(s) per socket: 4\n",
    "shm 64M 60M 4.1M 94% /dev/shm\nopen files (-n) 1024\nexport NCCL_DEBUG=INFO\n",
    "jupyter lab --ip=0.0.0.0 --ServerApp.token=''\nLnkSta: Speed 8GT/s, Width x8\n",
    "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+\n",
    '{"schema": 1, "taken_at": "2026-01-01"}',
)


def _judged(reading: Reading) -> None:
    assert diagnose(reading.snapshot, MACHINE_RULES).broken == {}
    assert not [note for note in reading.notes if "defect" in note]
    reading.snapshot.to_json()


def test_an_issue_with_several_tools_between_prose_is_read() -> None:
    reading = read([ISSUE])
    assert reading.recognised == ("nvidia-smi", "collect_env")
    machine = reading.snapshot
    assert machine.torch is not None
    assert machine.torch.version == "2.8.0+cu128"
    assert machine.gpus is not None
    assert machine.gpus.boards[0].compute_capability == "9.0"
    assert reading.unknown == ("$ lsmod | head -2",)


def test_several_files_make_one_case() -> None:
    machine = read([REPORT, TABLE]).snapshot
    assert machine.torch is not None
    assert machine.driver is not None
    assert machine.driver.module_version == "550.90.07"


def test_a_snapshot_beside_text_is_added_to(healthy: Snapshot) -> None:
    reading = read([healthy.to_json().decode(), "shm 64M 60M 4.1M 94% /dev/shm"])
    assert reading.recognised == ("gpudoctor snapshot", "limits and shared memory")
    assert reading.snapshot.shm == healthy.shm


def test_a_newer_snapshot_is_a_note() -> None:
    reading = read(['{"schema": 99}'])
    assert reading.recognised == ()
    assert "newer" in reading.notes[0]


def test_prose_is_nothing() -> None:
    assert read(["my GPU is slow, please help\n"]).recognised == ()


@pytest.mark.parametrize(
    "dressed",
    [
        TABLE.replace("\n", "\r\n"),
        "\n".join(f"> {line}" for line in TABLE.splitlines()),
        "\n".join(f">> {line}" for line in TABLE.splitlines()),
        "\n".join(f"\x1b[32m{line}\x1b[0m" for line in TABLE.splitlines()),
        "\n".join(f"2026-03-02T10:00:00.1234567Z {line}" for line in TABLE.splitlines()),
        TABLE.replace(" ", "\u00a0"),
        "~~~\n" + TABLE + "~~~\n",
    ],
    ids=["windows", "quoted", "quoted twice", "colours", "ci", "nbsp", "fence"],
)
def test_what_is_around_the_output_changes_nothing(dressed: str) -> None:
    assert read([dressed]).snapshot == read([TABLE]).snapshot


def test_a_python_prompt_is_no_quote() -> None:
    assert clean(">>> torch.__version__\n> > quoted") == ">>> torch.__version__\nquoted"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_bytes_of_any_encoding_are_text(encoding: str) -> None:
    assert clean(decode("Adressgrößen: 1 GPU".encode(encoding))).endswith("en: 1 GPU")


@given(st.text(max_size=2000))
@settings(max_examples=60, deadline=None)
def test_any_text_gives_an_answer(text: str) -> None:
    _judged(read([text]))


@given(st.binary(max_size=2000))
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_an_answer(data: bytes) -> None:
    _judged(read([decode(data)]))


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.integers(0, 3000), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_it_gives_an_answer(pieces: list[str], start: int, end: int) -> None:
    _judged(read(["".join(pieces)[start:][:end]]))


@given(st.permutations([line for piece in PIECES for line in piece.splitlines()]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_shuffled_and_doubled_it_gives_an_answer(lines: list[str], doubled: bool) -> None:
    text = "\n".join(lines)
    _judged(read([text, text] if doubled else [text]))


@given(
    st.lists(st.sampled_from([word for piece in PIECES for word in piece.split()] + list("|\t\n :=>$")), max_size=200)
)
@settings(max_examples=60, deadline=None)
def test_shuffled_words_give_an_answer(words: list[str]) -> None:
    _judged(read([" ".join(words)]))


def _seconds(text: str) -> float:
    """Of the quicker of two, since other work slows a machine."""

    def once() -> float:
        begin = time.perf_counter()
        read([text])
        return time.perf_counter() - begin

    return min(once(), once())


HOSTILE = (
    *(line + "\n" for piece in PIECES for line in piece.splitlines() if line.strip()),
    *(
        "| 1 1 1 1 C x" + " " * 300,
        "NCCL_A=" + "x" * 2000 + " NCCL_B=" + "y" * 900 + "\n",
        "[pip3] a" + " " * 300 + "b\n",
    ),
    *(
        "\x1b[",
        "\x1b]",
        "> ",
        ">",
        "```\n",
        "$ x\n",
        '{"schema": 1',
        "&gt;&#x27;",
        "(",
        "a: b\n",
        "torch.__version__\n",
    ),
    *("open files " + " " * 3000 + "\n", "shm " + "1 " * 300 + "/dev/shm\n", "jupyter lab --ServerApp.token= \\\n"),
)


@pytest.mark.slow
@pytest.mark.parametrize("unit", HOSTILE, ids=range(len(HOSTILE)))
def test_twice_the_text_takes_twice_the_time(unit: str) -> None:
    """Of any line a hundred thousand characters: a megabyte takes less than a second, and room for a busy machine."""
    half = unit * (50_000 // len(unit))
    assert _seconds(half * 2) < max(0.3, 4 * _seconds(half))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_of_nothing_finds_nothing(reader: object) -> None:
    assert callable(reader.read)  # type: ignore[attr-defined]
    assert reader.read("") is None  # type: ignore[attr-defined]
    assert reader.read("hello\nworld\n") is None  # type: ignore[attr-defined]
