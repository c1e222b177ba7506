"""Lists of pip, uv and conda."""

import pytest

from gpudoctor.facts.libraries import WheelLibrary
from gpudoctor.facts.packages import Package
from gpudoctor.facts.torch import TorchBuild
from gpudoctor.readers.pip_list import read
from gpudoctor.snapshot import Snapshot

COLUMNS = """\
Package                  Version       Editable project location
------------------------ ------------- -------------------------
flash_attn               2.8.3
nvidia-nccl-cu12         2.27.3
torch                    2.8.0+cu128
torchvision              0.23.0+cu128
train                    0.1           /home/user/train

$ python train.py
"""
FROZEN = """\
-e git+https://example.org/train@0123abc#egg=train
flash-attn @ file:///tmp/flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl#sha256=00
nvidia-nccl-cu12==2.27.3
torch==2.8.0+cu128
torchvision==0.23.0+cu128 ; python_version > "3.9"
"""
CONDA = """\
# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
cudnn                     9.1.1.17             h2150271_0    conda-forge
nvidia-nccl-cu12          2.21.5                   pypi_0    pypi
pytorch                   2.4.0           py3.11_cuda12.4_cudnn9.1.0_0    pytorch
"""
SHOWN = "Name: torch\nVersion: 2.4.0+cu121\nSummary: Tensors\n---\nName: torchvision\nVersion: 0.20.1+cu124\n"


def _read(text: str) -> Snapshot:
    found = read(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", [COLUMNS, FROZEN], ids=["list", "freeze"])
def test_columns_and_freeze_give_the_same(text: str) -> None:
    found = _read(text)
    assert found.torch == TorchBuild(installed=True, version="2.8.0+cu128", cuda="12.8", build="cuda")
    assert found.packages is not None
    assert found.packages.get("flash-attn") == Package(name="flash-attn", version="2.8.3")
    assert found.packages.get("torchvision") == Package(name="torchvision", version="0.23.0+cu128", local_cuda="cu128")
    assert found.libraries is not None
    assert found.libraries.wheels == (
        WheelLibrary(package="nvidia-nccl-cu12", version="2.27.3", library="nccl", cuda_major=12),
    )


def test_conda_tells_torchs_build_and_its_own_libraries() -> None:
    found = _read(CONDA)
    assert found.torch == TorchBuild(installed=True, version="2.4.0", cuda="12.4", build="cuda")
    assert found.libraries is not None
    assert [(wheel.package, wheel.conda) for wheel in found.libraries.wheels or ()] == [
        ("cudnn", True),
        ("nvidia-nccl-cu12", False),
    ]


def test_pip_show_is_read() -> None:
    found = _read(SHOWN)
    assert found.torch is not None
    assert found.torch.version == "2.4.0+cu121"
    assert found.packages is not None
    assert found.packages.get("torchvision") == Package(name="torchvision", version="0.20.1+cu124", local_cuda="cu124")


@pytest.mark.parametrize(
    "text",
    ["pip install torch==2.1.0 torchvision==0.16.0", "torch==2.1.0", "a == b", "Name: Jane\nVersion: 2\nPackage"],
)
def test_a_command_or_a_wish_is_no_list(text: str) -> None:
    found = read(text)
    assert found is None or found.torch is None
