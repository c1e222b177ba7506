"""The health of a board, as NVML tells it."""

from pathlib import Path

import pytest

from gpudoctor.facts.gpu import Gpu
from gpudoctor.probes import gpu_health
from gpudoctor.probes.nvml import Nvml
from gpudoctor.probes.system import System
from tests.probes.nvml_machines import UNSUPPORTED, Board, Machine, Refuses, fabric, fields, geforce, h100


@pytest.fixture
def bare(tmp_path: Path) -> System:
    return System(root=tmp_path, environ={})


def _told(board: Board, system: System) -> Gpu:
    return Gpu(index=0, **gpu_health.read(Nvml(Machine(board)), board, system))


def test_pages_are_asked_of_boards_that_remap_no_rows(bare: System) -> None:
    board = h100().but(
        RemappedRows=Refuses(3), RetiredPages=lambda cause: [1] * (cause + 1), RetiredPagesPendingStatus=1
    )
    told = _told(board, bare)
    assert (told.retired_pages, told.retired_page_pending) == (3, True)
    assert _told(h100(), bare).retired_page_pending is None


def test_a_corrupt_inforom_and_an_action_the_driver_asks_for(bare: System) -> None:
    board = _told(h100().but(InforomConfigurationChecksum=Refuses(14), FieldValues=fields(f230=4)), bare)
    assert (board.inforom_corrupt, board.recovery_action) == (True, "drain_and_reset")
    assert _told(h100().but(FieldValues=fields()), bare).recovery_action is None


def test_ecc_that_is_off_counts_nothing(bare: System) -> None:
    board = _told(h100().but(EccMode=[0, 1]), bare)
    assert (board.ecc_mode, board.ecc_uncorrected_volatile) == (False, None)
    assert _told(geforce(), bare).ecc_mode is None


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [(3, 0, ("completed", "success")), (3, 15, ("completed", "gpu_is_lost")), (2, 0, ("in_progress", None))],
)
def test_the_fabrics_state_and_the_status_it_completed_with(
    bare: System, state: int, status: int, told: tuple[str, str | None]
) -> None:
    board = _told(h100().but(GpuFabricInfoV=fabric(state, status, health=2)), bare)
    assert (board.fabric_state, board.fabric_status) == told
    assert board.fabric_health == "unhealthy"


def test_a_driver_without_a_summary_tells_the_state_all_the_same(bare: System) -> None:
    def second_version_only(info: object) -> object:
        struct = info._obj  # type: ignore[attr-defined]
        return Refuses(25) if hasattr(struct, "healthSummary") else fabric(3)(info)

    board = _told(h100().but(GpuFabricInfoV=second_version_only), bare)
    assert (board.fabric_state, board.fabric_health) == ("completed", None)
    assert _told(h100().but(GpuFabricInfoV=Refuses(UNSUPPORTED)), bare).fabric_state is None
