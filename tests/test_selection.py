"""Words of users and what they mean."""

import pytest

from gpudoctor.rules import MACHINE_RULES
from gpudoctor.selection import UnknownWord, find, select


def _codes(*words: str) -> list[str]:
    return [rule.code for rule in select(words)]


def test_a_rule_is_found_by_code_or_name_in_either_case() -> None:
    for word in ("SHM001", "shm001", "shm-too-small", "SHM_too_small", " SHM001 "):
        assert find(word).code == "SHM001"


def test_a_slip_is_answered_with_the_nearest_word() -> None:
    with pytest.raises(UnknownWord, match="'SHM0001'; the nearest is SHM001"):
        find("SHM0001")
    with pytest.raises(UnknownWord, match="the nearest is shm-too-small"):
        find("shm-to-smal")
    with pytest.raises(UnknownWord, match="the nearest is SHM"):
        select(["SHMM"])


def test_what_looks_like_nothing_points_to_the_list() -> None:
    with pytest.raises(UnknownWord, match="`gpudoctor rules` lists them"):
        find("完")


def test_no_word_selects_every_rule() -> None:
    assert select([]) == MACHINE_RULES
    assert select([" , "]) == MACHINE_RULES


def test_a_rule_on_jobs_is_none_of_check() -> None:
    for word in ("DAT001", "COM"):
        with pytest.raises(UnknownWord, match="gpudoctor profile"):
            select([word])


def test_words_may_be_repeated_or_joined_by_commas_and_mixed() -> None:
    assert _codes("SHM001,shm-full") == _codes("SHM001", "SHM002") == ["SHM001", "SHM002"]
    assert _codes("SHM") == [rule.code for rule in MACHINE_RULES if rule.area == "SHM"]
    assert _codes("shm", "SHM001") == _codes("SHM")
