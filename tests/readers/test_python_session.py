"""What people ask torch by hand."""

import pytest

from gpudoctor.facts.libraries import Libraries
from gpudoctor.readers.python_session import read
from gpudoctor.snapshot import Snapshot


def _read(text: str) -> Snapshot:
    found = read(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        ">>> import torch\n>>> torch.__version__\n'2.5.0+cu124'\n>>> torch.cuda.is_available()\nFalse\n",
        '$ python -c "print(torch.__version__)"\n2.5.0+cu124\n$ python -c "torch.cuda.is_available()"\nFalse',
        "print(torch.__version__)\n2.5.0+cu124\nprint(torch.cuda.is_available())\nFalse",
    ],
    ids=["prompt", "shell", "notebook"],
)
def test_question_and_answer_are_read(text: str) -> None:
    found = _read(text)
    assert found.torch is not None
    assert (found.torch.version, found.torch.cuda, found.torch.build) == ("2.5.0+cu124", "12.4", "cuda")
    assert found.torch_runtime is not None
    assert found.torch_runtime.cuda_available is False


def test_the_last_answer_counts() -> None:
    found = _read("torch.cuda.is_available()\nFalse\ntorch.cuda.is_available()\nTrue\n")
    assert found.torch_runtime is not None
    assert found.torch_runtime.cuda_available is True


def test_the_toolkit_is_read() -> None:
    assert _read("Cuda compilation tools, release 12.4, V12.4.131").libraries == Libraries(nvcc_version="12.4")


@pytest.mark.parametrize("text", ["if torch.cuda.is_available():\n    x", "pip install torch 2.1", "torch.__version__"])
def test_a_question_without_an_answer_is_none(text: str) -> None:
    assert read(text) is None
