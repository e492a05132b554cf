"""Hashes: their values are stored in result rows, caches and checkpoints, so they must not change."""

from pathlib import Path

import pytest

from rdm.errors import UserError
from rdm.hashing import derive_seed, file_hash, settings_hash, short_hash


def test_stored_values_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content\n")
    assert short_hash("a", "b") == "59b271ae1bbcb1d31d41"
    assert settings_hash({"b": [2], "a": 1}) == "ae8a9a505246"
    assert file_hash(tmp_path / "file") == "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53"
    assert derive_seed("noise", 0, 1, 2, 3) == 781565535733711928


def test_short_hash_depends_on_order_and_boundaries() -> None:
    parts = [("a", "b"), ("ab",), ("b", "a"), ("a", "b", ""), ("a",)]
    assert len({short_hash(*each) for each in parts}) == 5
    assert short_hash("a", "b") == short_hash("a", "b")


def test_settings_hash_ignores_the_order_of_keys() -> None:
    assert settings_hash({"a": 1, "b": {"c": 2, "d": 3}}) == settings_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})


def test_file_hash_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing cannot be read"):
        file_hash(tmp_path / "missing")
