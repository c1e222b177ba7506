"""The table of NCCL's variables."""

from gpudoctor.tables.nccl import table


def test_names_stand_in_one_list_alone() -> None:
    documented = [row.name for row in table().variable]
    names = [*documented, *(row.name for row in table().renamed), *table().undocumented]
    assert len(names) == len(set(names))
    assert not set(names) & set(table().foreign_names)


def test_every_row_has_a_source_that_is_spelled_out() -> None:
    assert {row.source for row in table().variable} <= table().sources.keys()
    assert {row.source for row in table().renamed} <= table().sources.keys()


def test_values_for_debugging_say_what_they_do() -> None:
    assert [row.name for row in table().variable if bool(row.debug) != bool(row.effect)] == []


def test_new_names_are_themselves_known() -> None:
    targets = [row.to.partition("=")[0] for row in table().renamed if row.to]
    assert [name for name in targets if name not in table().known()] == []
