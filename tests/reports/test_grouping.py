"""Places written as people would."""

import pytest

from gpudoctor.reports.grouping import places


@pytest.mark.parametrize(
    ("wheres", "text"),
    [
        ([], ""),
        ([""], ""),
        (["GPU 0"], "GPU 0"),
        (["GPU 0", "GPU 1", "GPU 3", "GPU 1"], "GPU 0, 1, 3"),
        (["GPU 0", "rank 1", "rank 2", "GPU 3"], "GPU 0, rank 1, 2, GPU 3"),
        (["/dev/shm", "/tmp"], "/dev/shm, /tmp"),
        (["GPU 0 link 1", "GPU 0 link 2"], "GPU 0 link 1, GPU 0 link 2"),
        (["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"], "NCCL_P2P_DISABLE, NCCL_SHM_DISABLE"),
        (["mlx5_0 port 1", "mlx5_1 port 1"], "mlx5_0 port 1, mlx5_1 port 1"),
        (["7", "GPU 7"], "7, GPU 7"),
        ([f"rank {number}" for number in (0, 1, 2, 5, 6, 7, 8, 9, 12)], "rank 0, 1, 2, 5–9, 12"),
        ([f"GPU {number}" for number in range(8)] + ["/tmp"], "GPU 0–7, /tmp"),
        (["rank 9", "rank 10", "rank 11", "rank 12"], "rank 9–12"),
    ],
)
def test_a_kind_is_named_once(wheres: list[str], text: str) -> None:
    assert places(wheres) == text
