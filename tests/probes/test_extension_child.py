"""The trial itself, in this process and its forks."""

import os
import signal
from collections.abc import Callable

import pytest

from gpudoctor.probes import extension_child


def _raise(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


def test_what_goes_well_tells_nothing() -> None:
    assert extension_child.trial(lambda: None, seconds=5) == {}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("/x/a.so: undefined symbol: f\nmore"), "/x/a.so: undefined symbol: f"),
        (ImportError("no"), "ImportError: no"),
        (SystemExit(), "SystemExit: "),
    ],
)
def test_an_error_is_told_in_one_line(error: BaseException, told: str) -> None:
    assert extension_child.trial(_raise(error), seconds=5) == {"error": told}


def test_a_death_is_told_with_its_signal() -> None:
    assert extension_child.trial(lambda: os.kill(os.getpid(), signal.SIGTERM), seconds=5) == {"signal": 15}


def test_a_folder_without_torchs_libraries_says_so() -> None:
    assert "libtorch" in (extension_child.load_torch("/nowhere") or "")
