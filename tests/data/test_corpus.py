"""Text from files: what is read, and what is said when it cannot be."""

import gzip
import json
from pathlib import Path

import pytest

from rdm.data.corpus import AlignedText, JsonLines
from rdm.errors import UserError


def aligned(folder: Path, source: bytes, target: bytes, pack: bool = False) -> AlignedText:
    for side, content in (("de", source), ("en", target)):
        name = f"train.{side}" + (".gz" if pack else "")
        (folder / name).write_bytes(gzip.compress(content) if pack else content)
    return AlignedText(str(folder), "de", "en")


@pytest.mark.parametrize("pack", [False, True])
def test_aligned_text(tmp_path: Path, pack: bool) -> None:
    corpus = aligned(tmp_path, "eins\nzwei ä\u2028b\n".encode(), b"one\n two \n", pack)
    assert corpus.read("train") == (["eins", "zwei ä\u2028b"], ["one", "two"])
    assert corpus.references("train") == [["one", "two"]]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\n", b"a\n", r"train.de has 2 lines, but .*train.en has 1"),
        (b"a\n\xff\n", b"a\nb\n", r"train.de, line 2 is not UTF-8"),
        (b"", b"a\n", r"train.de is empty"),
    ],
)
def test_bad_text(tmp_path: Path, source: bytes, target: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        aligned(tmp_path, source, target).read("train")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*valid.de \(nor valid.de.gz\)"):
        aligned(tmp_path, b"a\n", b"a\n").read("valid")


def test_broken_gzip(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 1000)[:20])
    with pytest.raises(UserError, match=r"train.jsonl.gz cannot be read"):
        JsonLines(str(tmp_path)).read("train")


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"src": "a b", "trg": "c"}, {"trg": "d", "src": "ü", "more": 1}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert JsonLines(str(tmp_path)).read("train") == (["a b", "ü"], ["c", "d"])
    assert JsonLines(str(tmp_path), source="trg", target="src").read("train") == (["c", "d"], ["a b", "ü"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ('{"src": "a"}', "line 2 needs the keys 'src' and 'trg'"),
        ('{"src": "a", "trg": 3}', "line 2 needs the keys"),
        ('["a", "b"]', "line 2 needs the keys"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.jsonl").write_text('{"src": "a", "trg": "b"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        JsonLines(str(tmp_path)).read("train")
