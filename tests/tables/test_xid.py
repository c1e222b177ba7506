"""The Xid table: whole, sourced, and asked the right way."""

from collections import Counter

import pytest

from gpudoctor.tables import xid


def test_every_number_stands_in_one_row_and_every_row_names_a_document() -> None:
    table = xid.load()
    twice = [
        number for number, times in Counter(number for row in table.fault for number in row.xids).items() if times > 1
    ]
    assert twice == []
    assert {row.source for row in table.fault} == set(table.sources)


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(48, "isolate"), (79, "isolate"), (63, "service"), (31, "application"), (45, "application"), (154, "note")],
)
def test_verdicts(number: int, verdict: str) -> None:
    assert xid.fault(number).verdict == verdict


def test_an_unknown_number_is_a_note() -> None:
    assert xid.fault(99999) is xid.NOTE


def test_nvlink_5_events_count_only_where_the_line_says_fatal() -> None:
    assert xid.fault(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6)").verdict == "isolate"
    assert xid.fault(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)").verdict == "note"
    assert xid.fault(145).verdict == "note"
