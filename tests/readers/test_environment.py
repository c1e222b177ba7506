"""Environment variables, as shells, images, launchers and Python set them."""

import pytest

from gpudoctor.readers.environment import read


def _variables(text: str) -> dict[str, str]:
    found = read(text)
    return found.environment.variables if found is not None and found.environment is not None else {}


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_DEBUG=INFO",
        "export NCCL_DEBUG=INFO",
        'export NCCL_DEBUG="INFO"',
        'declare -x NCCL_DEBUG="INFO"',
        "user@node1:~$ export NCCL_DEBUG=INFO",
        "$ NCCL_DEBUG=INFO torchrun --nproc-per-node 8 train.py",
        "ENV NCCL_DEBUG=INFO",
        "ENV NCCL_DEBUG INFO",
        "set NCCL_DEBUG=INFO",
        '$env:NCCL_DEBUG = "INFO"',
        "docker run --gpus all -e NCCL_DEBUG=INFO image",
        "mpirun -np 8 -x NCCL_DEBUG=INFO ./all_reduce_perf",
        'os.environ["NCCL_DEBUG"] = "INFO"',
        "$ echo $NCCL_DEBUG\nINFO",
    ],
)
def test_a_setting_is_read(line: str) -> None:
    assert _variables(line) == {"NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    "text",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "For debugging consider passing\nCUDA_LAUNCH_BLOCKING=1",
        "NCCL_P2P_DISABLE=1 fixes it",
        "I tried NCCL_P2P_DISABLE=1",
        "(run with NCCL_DEBUG=WARN for details)",
    ],
)
def test_a_sentence_about_a_variable_sets_nothing(text: str) -> None:
    assert _variables(text) == {}


def test_secrets_and_strangers_are_left_out() -> None:
    text = "HOME=/home/user\nNCCL_TOKEN=abc\nTORCH_INDEX=https://user:pw@example.org\nOMP_NUM_THREADS=8\nPATH=/bin"
    assert _variables(text) == {"OMP_NUM_THREADS": "8"}


def test_the_last_setting_counts() -> None:
    assert _variables("NCCL_DEBUG=WARN\nNCCL_DEBUG=INFO") == {"NCCL_DEBUG": "INFO"}


def test_libraries_and_containers_are_told_too() -> None:
    found = read("LD_LIBRARY_PATH=/usr/local/cuda/lib64:/opt/lib:\nCUDA_HOME=/opt/cuda\nNVIDIA_VISIBLE_DEVICES=void\n")
    assert found is not None
    assert found.libraries is not None
    assert (found.libraries.ld_library_path, found.libraries.cuda_home) == (
        ("/usr/local/cuda/lib64", "/opt/lib"),
        "/opt/cuda",
    )
    assert found.container is not None
    assert (found.container.kind, found.container.visible_devices) == (None, "void")
