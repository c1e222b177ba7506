"""The kernel's clock."""

import sys
from pathlib import Path

import pytest

from gpudoctor.probes import clock
from gpudoctor.probes.system import NotRead, System


@pytest.mark.skipif(sys.platform != "linux", reason="Linux")
def test_the_kernel_tells_whether_its_clock_is_kept_in_step() -> None:
    found = clock.read(System())
    assert found.synchronised in (True, False)
    # The kernel stops counting at 16 s, which it gives for a clock that nothing keeps.
    assert found.max_error_s is not None
    assert 0 <= found.max_error_s <= 16


def test_a_recorded_machine_has_no_clock(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="recorded"):
        clock.read(System(root=tmp_path))


def test_other_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NotRead, match="only Linux"):
        clock.read(System())
