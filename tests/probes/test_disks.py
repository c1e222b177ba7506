"""Folders on real file systems, one of them dead."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.disks import Folder
from gpudoctor.probes import disks
from gpudoctor.probes.system import NotRead, System


def _by_role(system: System, **options: Any) -> dict[str, Folder]:
    return {folder.role: folder for folder in disks.read(system, **options).folders}


def test_the_folders_are_where_the_job_would_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = _by_role(System(environ={"TMPDIR": "scratch"}, checkpoint_dir=Path("runs/7")))
    assert list(found) == ["working", "temporary", "checkpoint"]
    assert found["temporary"].path == str(tmp_path / "scratch")
    assert found["checkpoint"].path == str(tmp_path / "runs/7")
    # Neither exists yet: the room is that of the nearest folder above.
    assert found["checkpoint"].total_bytes == shutil.disk_usage(tmp_path).total
    assert found["checkpoint"].writable is True
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_folder_is_tmp_where_no_variable_names_another() -> None:
    assert _by_role(System(environ={}))["temporary"].path == "/tmp"


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    (tmp_path / "link").symlink_to("/dev/shm")
    found = _by_role(System(environ={}, checkpoint_dir=tmp_path / "link"))["checkpoint"]
    assert (found.file_system, found.mount_point) == ("tmpfs", "/dev/shm")
    assert found.path == str(tmp_path / "link")


@contextmanager
def _blocked() -> Iterator[threading.Event]:
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def test_a_folder_without_an_answer_costs_only_its_own_line(tmp_path: Path) -> None:
    with _blocked() as event:

        def measure(path: Path) -> dict[str, Any]:
            if path == tmp_path:
                event.wait()
            return disks.space(path)

        system = System(environ={"TMPDIR": "/"}, checkpoint_dir=tmp_path)
        found = _by_role(system, measure=measure, deadline_s=0.2)
    assert found["checkpoint"].error == "no answer in 0.2 s"
    assert found["checkpoint"].file_system is not None  # The kernel's table tells without asking the disk.
    assert found["working"].error is None
    assert found["working"].total_bytes


def test_a_folder_that_answers_with_an_error_keeps_its_words() -> None:
    def measure(path: Path) -> dict[str, Any]:
        raise OSError(116, "Stale file handle")

    assert _by_role(System(environ={}), measure=measure)["working"].error == "Stale file handle"


def test_a_recorded_machine_has_no_room_to_read(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="recorded"):
        disks.read(System(root=tmp_path))


# A FUSE file system whose server never answers: every call on it waits, as on a dead NFS server.
HUNG = """
import ctypes, os, sys
from pathlib import Path
import msgspec
from gpudoctor.probes import disks
from gpudoctor.probes.system import System
try:
    server = os.open("/dev/fuse", os.O_RDWR)
except OSError:
    os._exit(77)
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None).mount(b"dead", os.fsencode(sys.argv[1]), b"fuse", 0, options):
    os._exit(77)
system = System(environ={"TMPDIR": "/"}, checkpoint_dir=Path(sys.argv[1]) / "run")
print(msgspec.json.encode(disks.read(system, deadline_s=0.3)).decode(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_dead_mount_costs_only_its_own_line(tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, "-c", HUNG, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount here")
    working, temporary, checkpoint = json.loads(done.stdout)["folders"]
    assert checkpoint["error"] == "no answer in 0.3 s"
    assert (checkpoint["file_system"], checkpoint["device"]) == ("fuse", "dead")
    assert working["total_bytes"]
    assert temporary["total_bytes"]
