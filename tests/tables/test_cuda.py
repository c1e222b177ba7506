"""The CUDA table: whole, sourced, and asked the right way."""

import pytest

from gpudoctor.tables import cuda


def test_every_row_names_a_document_of_the_table() -> None:
    table = cuda.load()
    used = {row.source for row in table.major} | {row.source for row in table.error}
    used |= {row.source for row in table.toolkit} | {row.compute_capability_source for row in table.toolkit}
    assert used == set(table.sources)


def test_toolkits_are_unique_newest_first_and_belong_to_a_major() -> None:
    order = [cuda.numbers(row.cuda) for row in cuda.load().toolkit]
    assert order == sorted(set(order), reverse=True)
    assert {version[0] for version in order} == {row.cuda for row in cuda.load().major}


def test_no_toolkit_came_with_a_driver_below_its_major_but_the_very_first() -> None:
    below = [
        row.cuda
        for row in cuda.load().toolkit
        if row.driver and cuda.numbers(row.driver) < cuda.numbers(cuda.min_driver(row.cuda) or "")
    ]
    assert below == ["11.0"]


@pytest.mark.parametrize(
    ("version", "floor"),
    [("11.8", "450.80.02"), ("12.8", "525.60.13"), ("13.0", "580"), ("10.2", None), ("", None)],
)
def test_min_driver_goes_by_the_major(version: str, floor: str | None) -> None:
    assert cuda.min_driver(version) == floor


def test_toolkit_ignores_the_patch_and_knows_what_it_does_not_know() -> None:
    row = cuda.toolkit("12.8.1")
    assert row is not None
    assert (row.driver, row.min_compute_capability, row.max_compute_capability) == ("570.26", "5.0", "12.0")
    newest = cuda.toolkit("13.5")
    assert newest is not None
    assert newest.driver is None
    assert cuda.toolkit("99.0") is None


def test_numbers_compare_drivers_of_unlike_length() -> None:
    assert cuda.numbers("580.65.06") > cuda.numbers("580") > cuda.numbers("570.124.06")
    assert cuda.numbers("550.54.15-1ubuntu1") == (550, 54)
    assert cuda.numbers("Could not collect") == ()


def test_an_error_is_printed_with_its_name_where_it_has_one() -> None:
    assert cuda.error(802) == "error 802 (cudaErrorSystemNotReady)"
    assert cuda.error(4711) == "error 4711"
