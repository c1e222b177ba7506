"""Bytes as people read them."""

import pytest

from gpudoctor.rules.sizes import size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (65536, "64 KiB"),
        (64 * 2**20, "64 MiB"),
        (9637888, "9.19 MiB"),
        (3 * 2**29, "1.5 GiB"),
        (25275990016, "23.5 GiB"),
        (2**40 - 1, "1024 GiB"),
        (4000 * 2**30, "3.91 TiB"),
    ],
)
def test_a_size_has_three_figures(count: int, text: str) -> None:
    assert size(count) == text
