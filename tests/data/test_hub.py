"""Corpora loaded with ``datasets``; local folders replace data sets of the Hub."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rdm.data.corpus import AlignedText, Documents, Lines
from rdm.data.hub import FilesOrHub, Hub
from rdm.errors import UserError


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the network and put caches below ``tmp_path``; libraries read the environment on import."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    datasets.disable_progress_bars()


def data_set(folder: Path, **splits: list[dict[str, Any]]) -> str:
    """Write a folder with one JSON file per split."""
    folder.mkdir(exist_ok=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def translations(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"translation": {"de": de, "en": en}, "id": number} for number, (de, en) in enumerate(pairs)]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return data_set(
        tmp_path / "set",
        train=translations(("eins", "one"), (" zwei\ndrei ", "two  three")),
        validation=translations(("vier", "four")),
        test=translations(("fünf", "five")),
    )


def hub(folder: str, **options: Any) -> Hub:
    return Hub(folder, ["translation.de", "translation.en"], **options)


def test_keys_in_a_column(folder: str) -> None:
    """Both sides come from one column; line breaks within a text become spaces."""
    assert hub(folder).read("train") == (["eins", "zwei drei"], ["one", "two  three"])
    assert hub(folder).read("valid") == (["vier"], ["four"])
    assert hub(folder, test="validation").read("test") == (["vier"], ["four"])
    assert hub(folder).references("test") == [["five"]]
    assert hub(folder).count("train") == 2


def test_plain_columns_of_parquet_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "set").mkdir()
    table = pa.table({"text": [" = A = \n", "", "a", " = B = \n"], "other": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "set" / "train-00000-of-00001.parquet")
    corpus = Hub(str(tmp_path / "set"), ["text"])
    assert corpus.read("train") == (["= A =", "", "a", "= B ="],)
    assert Documents(corpus, "^= ").read("train") == (["= A =\na", "= B ="],)


def test_fingerprint_depends_on_split_columns_and_text(folder: str, tmp_path: Path) -> None:
    first = hub(folder).fingerprint("train")
    assert hub(folder).fingerprint("train") == first
    assert hub(folder).fingerprint("valid") != first
    assert Hub(folder, ["translation.en", "translation.de"]).fingerprint("train") != first
    data_set(tmp_path / "set", train=translations(("sechs", "six")))
    assert hub(folder).fingerprint("train") != first
    assert hub(folder).read("train") == (["sechs"], ["six"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["de", "en"], r"set has no column de; it has \['translation', 'id'\]"),
        (["id"], r"set, row 1 has no text under id"),
        (["translation.fr"], r"set, row 1 has no text under translation\.fr"),
        (["id.de"], r"set, row 1 has no text under id\.de"),
    ],
)
def test_missing_columns_are_refused(folder: str, columns: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Hub(folder, columns).read("train")


def test_a_row_without_text_is_refused(tmp_path: Path) -> None:
    rows = [*translations(("eins", "one"), ("zwei", None)), {"translation": None, "id": 2}]
    corpus = hub(data_set(tmp_path / "set", train=rows[:2], validation=rows[::2]))
    with pytest.raises(UserError, match=r"row 2 has no text under translation\.en"):
        corpus.read("train")
    with pytest.raises(UserError, match=r"row 2 has no text under translation\.de"):
        corpus.read("valid")


def test_a_missing_split_is_refused(folder: str) -> None:
    with pytest.raises(UserError, match=r"set cannot be loaded: Unknown split .dev."):
        hub(folder, valid="dev").read("valid")


@pytest.mark.parametrize("content", [b'{"a": "b"}\n{{{\n', b"{"])
def test_a_damaged_data_set_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"set cannot be loaded: JSON parse error: .*$"):
        Hub(str(tmp_path / "set"), ["a"]).read("train")


@pytest.mark.parametrize("error", [ConnectionError("no route\nto host"), ConnectionError(), TimeoutError("too late")])
def test_an_unreachable_hub_is_reported_in_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    reason = (str(error) or "ConnectionError").splitlines()[0]
    with pytest.raises(UserError, match=rf"^the Hub data set some/where cannot be loaded: {reason}$"):
        Hub("some/where", ["text"]).read("train")


def test_offline_mode_is_reported() -> None:
    with pytest.raises(UserError, match=r"data set Salesforce/wikitext cannot be loaded: \S.*$"):
        Hub("Salesforce/wikitext", ["text"], "wikitext-2-v1").fingerprint("train")


# Files or the Hub.


def either(tmp_path: Path, hub: Hub | None) -> FilesOrHub:
    return FilesOrHub(AlignedText(str(tmp_path / "files"), "de", "en"), hub, "data/some.card.md")


def test_files_take_precedence(tmp_path: Path, folder: str) -> None:
    corpus = either(tmp_path, hub(folder))
    assert corpus.read("valid") == (["vier"], ["four"])
    assert corpus.fingerprint("valid") == hub(folder).fingerprint("valid")
    (tmp_path / "files").mkdir()
    for side in ("de", "en"):
        (tmp_path / "files" / f"valid.{side}").write_text(f"from a file {side}\n")
    assert corpus.read("valid") == (["from a file de"], ["from a file en"])
    assert corpus.fingerprint("valid") == corpus.files.fingerprint("valid")
    assert corpus.references("valid") == [["from a file en"]]


def test_files_and_hub_are_never_mixed(tmp_path: Path, folder: str) -> None:
    """If some files exist, a missing one is an error, although the Hub has the split."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.de").write_text("a\n")
    corpus = either(tmp_path, hub(folder))
    for split, name in (("train", "train.en"), ("valid", "valid.de")):
        with pytest.raises(UserError, match=rf"^there is no .*{name} \(nor {name}.gz\)$"):
            corpus.read(split)  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", ["read", "fingerprint"])
def test_without_files_and_hub_the_message_names_folder_and_card(tmp_path: Path, ask: str) -> None:
    """After the reason given by the Hub, if it was used."""
    advice = rf"; files are expected in data\.root={tmp_path / 'files'}, see data/some\.card\.md$"
    with pytest.raises(UserError, match=r"^the Hub data set not/here cannot be loaded: \S.*" + advice):
        getattr(either(tmp_path, Hub("not/here", ["de", "en"])), ask)("train")
    with pytest.raises(UserError, match=r"^there is no .*train\.de \(nor train\.de\.gz\)" + advice):
        getattr(either(tmp_path, None), ask)("train")


def test_documents_of_lines_from_files_or_the_hub(tmp_path: Path) -> None:
    """As configured for WikiText: headings are found in files and in a column."""
    text = [" = A = \n", "\n", " a \n", " = B = \n"]
    path = data_set(tmp_path / "set", train=[{"text": line} for line in text])
    files = Lines(str(tmp_path), "train.txt", None, None)
    corpus = Documents(FilesOrHub(files, Hub(path, ["text"]), "card"), "^= ")
    from_hub, hub_print = corpus.read("train"), corpus.fingerprint("train")
    (tmp_path / "train.txt").write_text("".join(text))
    assert corpus.read("train") == from_hub == (["= A =\na", "= B ="],)
    assert corpus.fingerprint("train") != hub_print


def test_nothing_is_written_to_the_home_folder(folder: str, tmp_path: Path) -> None:
    hub(folder).read("train")
    assert any((tmp_path / "cache").rglob("*.arrow"))
    assert not (tmp_path / "home").exists()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
