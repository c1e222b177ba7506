"""Figures as people read them."""

import pytest

from gpudoctor.reports.figures import count, milliseconds, percent, rate, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (0.004, "0 ms"),
        (0.82, "0.82 ms"),
        (9.996, "10.0 ms"),
        (82.14, "82.1 ms"),
        (224.6, "225 ms"),
        (1021.4, "1,021 ms"),
        (60.0, "60.0 ms"),
    ],
)
def test_lengths(value: float, text: str) -> None:
    assert milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (195, "195"),
        (9_480, "9,480"),
        (12_480, "12.5k"),
        (998_000, "998k"),
        (1_234_000, "1.23M"),
        (2.5e9, "2.5G"),
    ],
)
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (-1e-9, "0 %"), (0.0001, "< 0.1 %"), (0.004, "0.4 %"), (0.0096, "1 %"), (0.52, "52 %"), (1, "100 %")],
)
def test_shares(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("length", "text"), [(1.5, "1.5 s"), (60, "60 s"), (599, "599 s"), (900, "15 min")])
def test_waits(length: float, text: str) -> None:
    assert seconds(length) == text


def test_counts() -> None:
    assert [count(number, "rank") for number in (0, 1, 2000)] == ["0 ranks", "1 rank", "2,000 ranks"]
    assert count(2, "retry", "retries") == "2 retries"
