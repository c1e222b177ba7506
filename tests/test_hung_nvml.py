"""A driver that hangs or kills its caller costs the subject it was asked for, in time, and says so."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("gcc") is None, reason="builds a stub of the driver's library"
)

HANGS = "#include <unistd.h>\nint nvmlInitWithFlags(unsigned flags) { for (;;) pause(); }\n"
ABORTS = "#include <stdlib.h>\nint nvmlInitWithFlags(unsigned flags) { abort(); }\n"
ASK = """
from gpudoctor.collect import collect
from gpudoctor.probes.system import System
print(collect(System(quick=True), subjects=["gpus", "topology"], timeout_s=1.0).unread)
"""


def _unread(folder: Path, source: str) -> tuple[dict[str, str], float]:
    (folder / "nvml.c").write_text(source)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True, timeout=60
    )
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return eval(run.stdout), time.monotonic() - began


@pytest.mark.slow
def test_a_hung_nvml_ends_at_its_deadline(tmp_path: Path) -> None:
    unread, took_s = _unread(tmp_path, HANGS)
    assert unread == {"gpus": "no answer in 1 s", "topology": "no answer in 1 s"}
    assert took_s < 10


def test_an_nvml_that_aborts_takes_nobody_with_it(tmp_path: Path) -> None:
    unread, took_s = _unread(tmp_path, ABORTS)
    assert unread == {"gpus": "the probe died by SIGABRT", "topology": "the probe died by SIGABRT"}
    assert took_s < 10
