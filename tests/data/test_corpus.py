"""Corpora in files: reading, fingerprints and error messages."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rdm.data.corpus import AlignedText, Documents, Files, JsonLines, Lines
from rdm.data.reading import existing_version, read_lines
from rdm.errors import UserError

CONF = Path(__file__).parents[2] / "conf"
BOM = b"\xef\xbb\xbf"


def put(folder: Path, files: dict[str, bytes], pack: bool = False) -> str:
    """Write files, compressed or not, and return the folder as a string."""
    for name, content in files.items():
        path = folder / (name + ".gz" if pack else name)
        path.write_bytes(gzip.compress(content) if pack else content)
    return str(folder)


def rows(*pairs: tuple[str, str], source: str = "src", target: str = "trg") -> bytes:
    return "".join(json.dumps({target: b, "more": 1, source: a}) + "\n" for a, b in pairs).encode()


def lines(root: str) -> Lines:
    return Lines(root, "train.txt", "valid.txt", None)


# Reading.


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("mark", [b"", BOM])
def test_aligned_text(tmp_path: Path, pack: bool, mark: bytes) -> None:
    """Only a line feed ends a line; a Unicode separator or a form feed does not."""
    source, target = mark + "eins\r\nzwei ä\u2028b\x0cc\n".encode(), mark + b"one\n two \n"
    corpus = AlignedText(put(tmp_path, {"train.de": source, "train.en": target}, pack), "de", "en")
    assert corpus.read("train") == (["eins", "zwei ä\u2028b\x0cc"], ["one", "two"])
    assert corpus.references("train") == [["one", "two"]]


def test_last_line_needs_no_line_feed(tmp_path: Path) -> None:
    """Blank lines in the middle and at the end are kept, so that both sides stay aligned."""
    root = put(tmp_path, {"train.de": b"a\n\nb\n\n", "train.en": b"A\n\nB\nC"})
    assert AlignedText(root, "de", "en").read("train") == (["a", "", "b", ""], ["A", "", "B", "C"])


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("mark", [b"", BOM])
def test_json_lines(tmp_path: Path, pack: bool, mark: bytes) -> None:
    root = put(tmp_path, {"train.jsonl": mark + rows(("a b", "c"), ("ü", "d"))}, pack)
    assert JsonLines(root).read("train") == (["a b", "ü"], ["c", "d"])
    assert JsonLines(root, source="trg", target="src").read("train") == (["c", "d"], ["a b", "ü"])


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("mark", [b"", BOM])
def test_lines(tmp_path: Path, pack: bool, mark: bytes) -> None:
    assert lines(put(tmp_path, {"train.txt": mark + b"a\n\nb\n"}, pack)).read("train") == (["a", "", "b"],)


def test_one_side_may_be_compressed_and_the_plain_file_is_preferred(tmp_path: Path) -> None:
    put(tmp_path, {"train.de": b"packed\n"}, pack=True)
    root = put(tmp_path, {"train.en": b"plain\n"})
    assert AlignedText(root, "de", "en").read("train") == (["packed"], ["plain"])
    put(tmp_path, {"train.de": b"newer\n"})
    assert AlignedText(root, "de", "en").read("train")[0] == ["newer"]


def test_paths_outside_the_root(tmp_path: Path) -> None:
    """With ``..`` or as an absolute path."""
    (tmp_path / "root").mkdir()
    (tmp_path / "other").mkdir()
    put(tmp_path / "other", {"dev.de": b"a\n", "dev.en": b"b\n"})
    for name in ("../other/dev", str(tmp_path / "other" / "dev")):
        assert AlignedText(str(tmp_path / "root"), "de", "en", train=name).read("train") == (["a"], ["b"])


def test_documents_between_blank_lines(tmp_path: Path) -> None:
    root = put(tmp_path, {"train.txt": b"\n a\nb\n\n   \n\nc\n", "valid.txt": b"a\n"})
    assert Documents(lines(root)).read("train") == (["a\nb", "c"],)
    assert Documents(lines(root)).read("valid") == (["a"],)


WIKITEXT = """ 
 = Robert Boulter = 
 
 Robert is an actor . 
 He = she . 
 
 = = Career = = 
 
 = = = 2000 to 2005 = = = 
 
 In 2000 . 
 
 = 17 = 
 
 A number = 17 = 
"""  # noqa: W291, W293 (as the files are)


def test_wikitext_documents_begin_at_first_level_headings(tmp_path: Path) -> None:
    first_line = OmegaConf.load(CONF / "data" / "_wikitext.yaml").first_line
    corpus = Documents(lines(put(tmp_path, {"train.txt": WIKITEXT.encode()})), first_line)
    assert corpus.read("train") == (
        [
            "= Robert Boulter =\nRobert is an actor .\nHe = she .\n= = Career = =\n= = = 2000 to 2005 = = =\nIn 2000 .",
            "= 17 =\nA number = 17 =",
        ],
    )


def test_text_before_the_first_heading_is_kept(tmp_path: Path) -> None:
    corpus = Documents(lines(put(tmp_path, {"train.txt": b"before\n# a\nx\n# b\n"})), "#")
    assert corpus.read("train") == (["before", "# a\nx", "# b"],)


# Fingerprints.


def prints(root: Path, split: str = "train") -> dict[str, str]:
    """Return the fingerprints of every kind of corpus over the files of one folder."""
    corpora = {
        "aligned": AlignedText(str(root), "de", "en"),
        "swapped": AlignedText(str(root), "en", "de"),
        "json": JsonLines(str(root)),
        "other key": JsonLines(str(root), source="more"),
        "lines": lines(str(root)),
        "documents": Documents(lines(str(root))),
        "headings": Documents(lines(str(root)), "="),
        "other headings": Documents(lines(str(root)), "#"),
    }
    return {name: corpus.fingerprint(split) for name, corpus in corpora.items()}  # type: ignore[arg-type]


FILES = {"train.de": b"a\n", "train.en": b"b\n", "train.jsonl": rows(("a", "b")), "train.txt": b"a\n"}


def test_fingerprints_differ_by_keys_pattern_and_format(tmp_path: Path) -> None:
    put(tmp_path, FILES)
    found = prints(tmp_path)
    assert len(set(found.values())) == len(found)


def test_fingerprints_depend_on_content_alone(tmp_path: Path) -> None:
    """Not on modification time or location."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    put(here, FILES)
    found = prints(here)
    for file in here.iterdir():
        os.utime(file, (1, 1))
    assert prints(here) == found
    shutil.copytree(here, there)
    assert prints(there) == found
    put(here, {name: content.replace(b"a", b"ab") + content for name, content in FILES.items()})
    assert all(new != old for new, old in zip(prints(here).values(), found.values(), strict=True))


def test_a_change_of_either_side_changes_the_fingerprint(tmp_path: Path) -> None:
    corpus = AlignedText(put(tmp_path, FILES), "de", "en")
    seen = {corpus.fingerprint("train")}
    for side in ("de", "en"):
        put(tmp_path, {f"train.{side}": b"other\n"})
        seen.add(corpus.fingerprint("train"))
    assert len(seen) == 3


# Errors.

BAD_GZIP = {
    "cut off": gzip.compress(b"{}\n" * 1000)[:20],
    "not gzip at all": b"hello",
    "damaged inside": gzip.compress(b"a\n")[:10] + b"\xff" * 30,
    "damaged at the end": gzip.compress(b"a\n")[:-8] + b"\0" * 8,
}


@pytest.mark.parametrize("content", BAD_GZIP.values(), ids=BAD_GZIP)
def test_damaged_gzip_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.txt.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"train\.txt\.gz cannot be read: ."):
        lines(str(tmp_path)).read("train")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\n", b"a\n", r"train\.de\S* has 2 lines, but .*train\.en\S* has 1: the lines must be aligned"),
        (b"a\n\xff\n", b"a\nb\n", r"train\.de\S*, line 2 is not UTF-8"),
        (b"a\nb\n", b"a\nb\xc3", r"train\.en\S*, line 2 is not UTF-8"),
        (b"", b"a\n", r"train\.de\S* is empty"),
        (b"a\n", b"\n", r"train\.en\S* is empty"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_invalid_text_is_refused(tmp_path: Path, source: bytes, target: bytes, message: str, pack: bool) -> None:
    corpus = AlignedText(put(tmp_path, {"train.de": source, "train.en": target}, pack), "de", "en")
    with pytest.raises(UserError, match=message):
        corpus.read("train")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"train\.jsonl, line 2 is not JSON: ."),
        ("", r"train\.jsonl, line 2 is not JSON"),
        ('{"src": "a"}', r"train\.jsonl, line 2 needs the keys 'src' and 'trg', each with a text"),
        ('{"src": "a", "trg": 3}', "line 2 needs the keys"),
        ('{"src": null, "trg": "b"}', "line 2 needs the keys"),
        ('["a", "b"]', "line 2 needs the keys"),
        (r'{"src": "a \ud83d", "trg": "b"}', r"train\.jsonl, line 2 has an unpaired surrogate"),
    ],
)
def test_invalid_json_lines_are_refused(tmp_path: Path, line: str, message: str) -> None:
    root = put(tmp_path, {"train.jsonl": rows(("a", "b")) + line.encode() + b"\n" + rows(("a", "b"))})
    with pytest.raises(UserError, match=message):
        JsonLines(root).read("train")


KINDS: dict[str, Callable[[str], Files]] = {
    "aligned": lambda root: AlignedText(root, "de", "en", test=None),
    "json": lambda root: JsonLines(root, test=None),
    "lines": lines,
}


@pytest.mark.parametrize("kind", KINDS)
def test_missing_files_and_splits_are_refused(tmp_path: Path, kind: str) -> None:
    corpus = KINDS[kind](str(tmp_path))
    for ask in (corpus.read, corpus.fingerprint):
        with pytest.raises(UserError, match=r"there is no .*valid\.(\w+) \(nor valid\.\1\.gz\)"):
            ask("valid")
        with pytest.raises(UserError, match=r"there is no test split: set its file with data\.test=\.\.\."):
            ask("test")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.txt").mkdir()
    with pytest.raises(UserError, match="there is no"):
        existing_version(tmp_path / "train.txt")


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = lines(put(tmp_path, {"train.txt": b"a\n"}))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    for ask in (corpus.read, corpus.fingerprint):
        with pytest.raises(UserError, match=r"train\.txt cannot be read: .*Permission denied"):
            ask("train")


def test_an_invalid_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.first_line: '\(' is not a regular expression"):
        Documents(lines(str(tmp_path)), "(")


def test_documents_report_errors_of_their_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.txt, line 3 is not UTF-8"):
        Documents(lines(put(tmp_path, {"train.txt": b"a\n\n\xe4\n"}))).read("train")


def test_any_exists(tmp_path: Path) -> None:
    """One file is enough, compressed or not: an incomplete split is an error, no reason to use the Hub."""
    corpus = AlignedText(str(tmp_path), "de", "en", test=None)
    assert not corpus.any_exists()
    put(tmp_path, {"valid.en": b"a\n"}, pack=True)
    assert corpus.any_exists()
    assert read_lines(tmp_path / "valid.en.gz") == ["a"]
