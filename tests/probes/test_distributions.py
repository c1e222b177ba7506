"""Distributions by their metadata folders, as pip, conda and old setuptools leave them."""

import os
from pathlib import Path

from gpudoctor.probes.distributions import find


def _info(folder: Path, name: str, text: str | None) -> Path:
    info = folder / name
    info.mkdir(parents=True)
    if text is not None:
        (info / "METADATA").write_text(text)
    return info


def _metadata(version: str, *more: str) -> str:
    return "\n".join(
        ["Metadata-Version: 2.1", "Name: x", f"Version: {version}", *more, "", "Version: of the description"]
    )


def test_names_are_compared_as_pypi_normalises_them(tmp_path: Path) -> None:
    _info(tmp_path, "Flash_Attn-2.7.dist-info", _metadata("2.7", "Requires-Dist: torch", "Requires-Dist: einops"))
    found = find(["flash-attn"], [tmp_path])
    assert found["flash-attn"].version == "2.7"
    assert found["flash-attn"].all_of("Requires-Dist") == ["torch", "einops"]
    assert found["flash-attn"].header("Requires-Python") is None


def test_the_first_on_the_path_wins(tmp_path: Path) -> None:
    _info(tmp_path / "first", "x-1.dist-info", _metadata("1"))
    _info(tmp_path / "second", "x-2.dist-info", _metadata("2"))
    assert find(["x"], [tmp_path / "none", tmp_path / "first", tmp_path / "second"])["x"].version == "1"


def test_of_two_in_one_folder_the_one_written_last_counts(tmp_path: Path) -> None:
    old, new = (_info(tmp_path, f"x-{version}.dist-info", _metadata(version)) for version in ("2.0", "1.0"))
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))
    assert find(["x"], [tmp_path])["x"].version == "1.0"


def test_a_folder_without_metadata_is_no_distribution(tmp_path: Path) -> None:
    _info(tmp_path, "x-1.dist-info", None)
    _info(tmp_path, "y-1.dist-info", "Name: y\n")
    assert find(["x", "y"], [tmp_path]) == {}


def test_old_and_new_egg_infos_are_read(tmp_path: Path) -> None:
    (tmp_path / "x-1.0-py3.11.egg-info").write_text(_metadata("1.0"))
    (_info(tmp_path, "y.egg-info", None) / "PKG-INFO").write_text(_metadata("3.0"))
    found = find(["x", "y"], [tmp_path])
    assert (found["x"].version, found["y"].version) == ("1.0", "3.0")


def test_a_path_entry_that_is_no_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lib.zip").write_bytes(b"PK")
    assert find(["x"], [tmp_path / "lib.zip"]) == {}
