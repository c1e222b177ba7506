"""How a Jupyter server is started."""

import pytest

from gpudoctor.facts.exposure import Notebook
from gpudoctor.readers.jupyter import read


def _notebook(text: str) -> Notebook | None:
    found = read(text)
    return found.exposure.notebooks[0] if found and found.exposure and found.exposure.notebooks else None


@pytest.mark.parametrize(
    "text",
    [
        "jupyter lab --ip=0.0.0.0 --port=8888 --ServerApp.token='' --ServerApp.password=''",
        "CMD jupyter-lab --ip=* --port=8888 \\\n   --NotebookApp.token=''",
        "jupyter notebook --ip 0.0.0.0 --port 8888 --IdentityProvider.token=",
        "c.ServerApp.ip = '0.0.0.0'\nc.ServerApp.port = 8888\nc.ServerApp.token = ''\n",
    ],
)
def test_a_server_without_a_token_is_open(text: str) -> None:
    assert _notebook(text) == Notebook(address="0.0.0.0", port=8888, token=False)


def test_a_password_closes_it() -> None:
    notebook = _notebook("jupyter lab --ip=0.0.0.0 --ServerApp.token='' --ServerApp.password='argon2:abc'")
    assert notebook is not None
    assert notebook.token is True


@pytest.mark.parametrize("text", ["jupyter lab --ip=0.0.0.0", "Jupyter is nice", "pip install jupyter-lab"])
def test_a_server_of_which_nothing_is_said_is_none(text: str) -> None:
    assert read(text) is None
