"""Lines of files, read in blocks."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdm.data import reading
from rdm.data.reading import stream_raw_lines
from rdm.errors import UserError

BOM = b"\xef\xbb\xbf"


@given(text=st.text(st.sampled_from("aü中\n\n\r \u2028"), max_size=40), mark=st.sampled_from([b"", BOM]))
@settings(deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_lines_do_not_depend_on_blocks(tmp_path: Path, block: int, text: str, mark: bytes) -> None:
    """They are those of the whole text split at line feeds."""
    expected = text.removesuffix("\n").split("\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", max(block, len(mark)))
        for file, content in ((tmp_path / "a", mark + text.encode()), (tmp_path / "a.gz", mark + text.encode())):
            file.write_bytes(gzip.compress(content) if file.suffix else content)
            if len(expected) == 1 and not expected[0].strip():
                with pytest.raises(UserError, match="is empty"):
                    list(stream_raw_lines(file))
            else:
                assert list(stream_raw_lines(file)) == expected


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_the_line_of_an_error_does_not_depend_on_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(reading, "BLOCK", block)
    (tmp_path / "a").write_bytes("ü\n\nzwei\ndrei \xff\nvier".encode("latin-1").replace(b"\xfc", "ü".encode()))
    with pytest.raises(UserError, match="a, line 4 is not UTF-8: convert the file to UTF-8"):
        list(stream_raw_lines(tmp_path / "a"))
