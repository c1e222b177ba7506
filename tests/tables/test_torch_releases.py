"""The table of torch releases."""

from gpudoctor.tables.torch_releases import code, release, releases


def test_versions_are_unique_and_in_order() -> None:
    versions = [tuple(int(part) for part in row.version.split(".")) for row in releases()]
    assert versions == sorted(set(versions))


def test_every_release_has_the_code_of_its_default_wheel() -> None:
    assert [row.version for row in releases() if code(row.version, row.cuda) is None] == []


def test_a_local_tag_names_the_same_release() -> None:
    found = release("2.9.1+cu128")
    assert found is not None
    assert found.nccl == "2.27.5"


def test_a_release_of_the_future_is_not_known() -> None:
    assert release("9.0.0") is None
    assert code("9.0.0", "13.0") is None


def test_volta_leaves_with_the_cuda_13_wheels_not_with_2_8() -> None:
    for version in ("2.8.0", "2.9.1", "2.10.0"):
        row = code(version, "12.8")
        assert row is not None
        assert "sm_70" in row.arch_list
    row = code("2.11.0", "13.0")
    assert row is not None
    assert "sm_70" not in row.arch_list


def test_a_wheel_known_to_be_without_ptx_names_none_and_an_unknown_one_is_given_it() -> None:
    without, unknown = code("2.8.0", "12.8"), code("2.13.0", "13.0")
    assert without is not None
    assert unknown is not None
    assert not any(arch.startswith("compute_") for arch in without.arch_list)
    assert unknown.arch_list[-1] == "compute_120"
