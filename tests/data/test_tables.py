"""Table files, several files per split, and aligned files with any names."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rdm.data.corpus import AlignedText, FileNames, JsonLines, Lines
from rdm.data.documents import DocumentFiles
from rdm.data.tables import column_names
from rdm.errors import UserError

DE = ['er sagte: "nein"', "zwei, drei", "  fünf "]
EN = ['"no", he said', "two, three", "five"]
READ = ([text.strip() for text in DE], EN)


def write_tables(folder: Path) -> None:
    """Write the same pairs in every format, beside another column."""
    with (folder / "train.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "en", "de"], *([i, en, de] for i, (de, en) in enumerate(zip(DE, EN)))])  # noqa: B905
    tsv = "".join(f"{de}\t{i}\t{en}\n" for i, (de, en) in enumerate(zip(DE, EN, strict=True)))
    (folder / "train.tsv").write_text("de\tid\ten\n" + tsv)
    pq.write_table(pa.table({"de": DE, "en": EN, "id": [1, 2, 3]}), folder / "train.parquet")
    nested = [{"translation": {"de": de.strip(), "en": en}} for de, en in zip(DE, EN, strict=True)]
    (folder / "nested.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nested))
    pq.write_table(pa.Table.from_pylist(nested), folder / "nested.parquet")


def pairs(folder: Path, train: FileNames, source: str = "de", target: str = "en") -> AlignedText:
    return AlignedText(str(folder), source, target, train=train)


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.parquet"])
def test_columns_of_a_table(tmp_path: Path, name: str) -> None:
    """TSV has no quoting, CSV is quoted; the order of columns and other columns do not matter."""
    write_tables(tmp_path)
    corpus = pairs(tmp_path, name)
    assert corpus.read("train") == READ
    assert corpus.references("train") == [EN]
    assert pairs(tmp_path, name, "en", "de").read("train") == READ[::-1]
    assert corpus.locate("train", 1) == f"{tmp_path / name}, row 2"
    assert pairs(tmp_path, name, "en", "de").fingerprint("train") != corpus.fingerprint("train")


@pytest.mark.parametrize("name", ["nested.jsonl", "nested.parquet"])
def test_nested_keys(tmp_path: Path, name: str) -> None:
    write_tables(tmp_path)
    assert pairs(tmp_path, name, "translation.de", "translation.en").read("train") == READ
    if name.endswith("jsonl"):
        assert JsonLines(str(tmp_path), "translation.de", "translation.en", train=name).read("train") == READ
    with pytest.raises(UserError, match=r"1 needs the (keys|columns) 'translation\.fr' and .* translation\.de, trans"):
        pairs(tmp_path, name, "translation.fr", "translation.en").read("train")


def test_a_name_with_a_dot_is_preferred_to_a_nested_key(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"a.b": "flat", "a": {"b": "nested"}}) + "\n")
    assert pairs(tmp_path, "train.jsonl", "a.b", "a.b").read("train") == (["flat"], ["flat"])
    assert list(column_names({"a": {"b": "x", "c": 1}})) == ["a.b", "a.c (not a text)"]


def test_tables_may_be_compressed_and_have_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfde\ten\r\na\tb\r\n"))
    (tmp_path / "b.csv").write_bytes(b'\xef\xbb\xbfde,en\r\n\r\na,"b\nc"\r\n')
    assert pairs(tmp_path, "a.tsv").read("train") == (["a"], ["b"])
    assert pairs(tmp_path, "b.csv").read("train") == (["a"], ["b\nc"])
    assert pairs(tmp_path, "A.TSV").groups("A.TSV") == [(tmp_path / "A.TSV",)]


def test_several_files(tmp_path: Path) -> None:
    """A list keeps its order, a pattern is sorted; formats may be mixed; the fingerprint depends on every file."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.tsv").write_text("de\ten\na\tA\n")
    (tmp_path / "parts" / "2.tsv.gz").write_bytes(gzip.compress(b"en\tde\nB\tb\nC\tc\n"))
    (tmp_path / "3.jsonl").write_text('{"de": "d", "en": "D"}\n')
    every = pairs(tmp_path, ["3.jsonl", "parts/*.tsv"])
    assert every.read("train") == (list("dabc"), list("DABC"))
    assert every.locate("train", 3) == f"{tmp_path / 'parts' / '2.tsv.gz'}, row 2"
    found = {every.fingerprint("train"), pairs(tmp_path, ["parts/*.tsv", "3.jsonl"]).fingerprint("train")}
    (tmp_path / "parts" / "1.tsv").write_text("de\ten\nx\tA\n")
    assert len({*found, every.fingerprint("train")}) == 3
    for side in ("de", "en"):
        for number in (2, 1):
            (tmp_path / "parts" / f"p{number}.{side}").write_text(f"{side}{number}\n")
    assert pairs(tmp_path, "parts/p*").read("train") == (["de1", "de2"], ["en1", "en2"])
    lines = Lines(str(tmp_path), ["parts/p1.de", "parts/p?.en"], None, None)
    assert lines.read("train") == (["de1", "en1", "en2"],)


def test_aligned_files_with_any_names(tmp_path: Path) -> None:
    for name, text in {"x.german": "a\nb\n", "y.txt": "A\nB\n", "z[1].de": "c\n", "z[1].english": "C\n"}.items():
        (tmp_path / name).write_text(text)
    names: dict[str, str | list[str]] = {"en": ["y.txt", "z[1].english"], "de": ["x.german", "z[1].de"]}
    corpus = pairs(tmp_path, names)
    assert corpus.read("train") == (["a", "b", "c"], ["A", "B", "C"])
    assert corpus.exists("train")
    assert not corpus.exists("valid")
    assert corpus.locate("train", 2) == f"{tmp_path / 'z[1].de'}, line 1"


def test_documents_of_tables_and_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one\n\ntwo", "body": "other"}) + "\n")
    (tmp_path / "b.txt").write_text("three\nfour\n\nfive\n")
    root = str(tmp_path)
    assert DocumentFiles(root, ["a.jsonl", "b.txt"]).read("train") == (["one\n\ntwo", "three\nfour", "five"],)
    assert DocumentFiles(root, "a.jsonl", column="body").read("train") == (["other"],)
    prints = {DocumentFiles(root, "a.jsonl", column=name).fingerprint("train") for name in (None, "body")}
    assert len({*prints, DocumentFiles(root, "b.txt", first_line="x").fingerprint("train")}) == 3
    with pytest.raises(UserError, match=r"data\.first_line is for text files, but .*a\.jsonl has a document per row"):
        DocumentFiles(root, "a.jsonl", first_line="x").read("train")
    with pytest.raises(UserError, match=r"data\.column=body is for tables \(\.csv, .*\), not for .*b\.txt"):
        DocumentFiles(root, "b.txt", column="body").read("train")
    with pytest.raises(UserError, match=r"data\.train must be a file name or a list of them"):
        DocumentFiles(root, {"de": "a.jsonl"}).read("train")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "de\tfr\na\tb\n", r"a\.tsv, line 2 needs the columns 'de' and 'en', .*; it has the columns de, fr$"),
        ("a.tsv", "de\ten\na\tb\na\n", r"a\.tsv, line 3 has 1 fields, but line 1 names 2 columns: de, en$"),
        ("a.tsv", "de\ten\n", r"a\.tsv has no rows$"),
        ("a.tsv", "", r"a\.tsv is empty$"),
        ("a.csv", "", r"a\.csv is empty$"),
        ("a.csv", "de,en,de\na,b,c\n", r"a\.csv, line 1 names a column twice: de, en, de$"),
        ("a.csv", 'de,en\na,"b\n', r"a\.csv, line 2 is not CSV: unexpected end of data$"),
        ("a.csv", "de,en\na,b,c\n", r"a\.csv, line 2 has 3 fields, but line 1 names 2 columns: de, en$"),
        ("a.csv", b"de,en\na,b\n\xff,c\n", r"a\.csv, line 3 is not UTF-8: convert the file to UTF-8$"),
        ("a.jsonl", '{"de": 1, "en": "x"}\n', r"line 1 needs the keys .*; it has the keys de \(not a text\), en$"),
        ("a.jsonl", "[]\n", r"line 1 needs the keys .*; it has the keys none$"),
        ("a.parquet", "hello", r"a\.parquet is not a readable Parquet file: .+$"),
        ("a.txt", "a\n", r"a\.txt is a single file, but no table \(\.csv, .*\{de: FILE, en: FILE\}$"),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message) as caught:
        pairs(tmp_path, name).read("train")
    assert len(str(caught.value).splitlines()) == 1


def test_a_parquet_row_without_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"de": ["a", None], "en": ["b", "c"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet, row 2 needs the columns 'de' and 'en', each with a text"):
        pairs(tmp_path, "a.parquet").read("train")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("*.tsv", r"data\.train=\*\.tsv: no file in .* matches$"),
        ([], r"data\.train=\[\]: no file in .* matches$"),
        ([1], r"data\.train: \[1\] is not a list of file names$"),
        ({"de": "x"}, r"data\.train must name files for de and en, got de$"),
        ({"de": ["x", "y"], "en": "z"}, r"data\.train names 2 files for de, but 1 for en: they must be aligned$"),
    ],
)
def test_wrong_file_names_are_refused(tmp_path: Path, names: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pairs(tmp_path, names).read("train")
