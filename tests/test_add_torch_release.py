"""The script that adds a torch release to the table."""

import importlib.util
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

SCRIPT = Path(__file__).parents[1] / "docs/add_torch_release.py"
METADATA = """Metadata-Version: 2.4
Name: torch
Version: 2.99.0
Requires-Python: >=3.12
Requires-Dist: filelock
Requires-Dist: cuda-toolkit[cublas,cudart]==14.1.2; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu14==9.99.0.1; platform_system == "Linux"
Requires-Dist: nvidia-nccl-cu14==2.40.1; platform_system == "Linux"
Requires-Dist: triton~=3.9.0; platform_system == "Linux"

Requires-Dist: nothing, since this is the readme
"""


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_torch_release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_come_from_the_metadata_and_what_it_lacks_from_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "METADATA").write_text(METADATA)
    options = [
        "--python",
        "cp312",
        "cp314t",
        "--torchvision",
        "0.50.0",
        "--arch-list",
        "sm_90",
        "sm_120",
        "compute_120",
    ]
    _script().main(["2.99.0", "--metadata", str(tmp_path / "METADATA"), *options])
    written = msgspec.toml.decode(capsys.readouterr().out)
    (release,), (code,) = written["release"], written["code"]
    assert release.pop("source").startswith("METADATA of the torch 2.99.0 wheel")
    assert release == {
        "version": "2.99.0",
        "python": ["cp312", "cp314t"],
        "cuda": "14.1",
        "cudnn": "9.99.0.1",
        "nccl": "2.40.1",
        "torchvision": "0.50.0",
    }
    assert (code["torch"], code["cuda"], code["arch"], code["ptx"]) == ("2.99", "14.1", ["9.0", "12.0"], "12.0")


def test_appended_rows_leave_the_table_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "METADATA").write_text(METADATA)
    script = _script()
    table = tmp_path / "table.toml"
    table.write_text(script.TABLE.read_text())
    monkeypatch.setattr(script, "TABLE", table)
    script.main(["2.99.0", "--metadata", str(tmp_path / "METADATA"), "--python", "cp312", "--append"])
    assert msgspec.toml.decode(table.read_bytes())["release"][-1]["version"] == "2.99.0"


def test_a_wheel_without_cuda_is_refused(tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\nRequires-Dist: filelock\n")
    with pytest.raises(SystemExit, match="no exact CUDA runtime"):
        _script().main(["2.99.0", "--metadata", str(tmp_path / "METADATA"), "--python", "cp312"])
