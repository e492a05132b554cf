"""A limited training split, and a validation split held out of it."""

from pathlib import Path

import pytest

from rdm.data.corpus import AlignedText, Corpus, Documents, Lines
from rdm.data.hub import FilesOrHub
from rdm.data.selection import Selection
from rdm.data.toy import ToyText, ToyTranslation
from rdm.errors import UserError
from tests.data.helpers import pairs

COUNT = 40


@pytest.fixture
def files(tmp_path: Path) -> AlignedText:
    for split in ("train", "test"):
        for side in ("de", "en"):
            lines = (f"{split} {side} {number}\n" for number in range(COUNT))
            (tmp_path / f"{split}.{side}").write_text("".join(lines))
    return AlignedText(str(tmp_path), "de", "en")


def numbers(texts: list[str]) -> list[int]:
    return [int(text.split()[-1]) for text in texts]


def test_held_out_examples_are_not_trained_on(files: AlignedText) -> None:
    """They are spread over the file, aligned, in the order of the file, and the same every time."""
    corpus = Selection(files, hold_out=10)
    train, valid = (numbers(corpus.read(split)[0]) for split in ("train", "valid"))  # type: ignore[arg-type]
    assert sorted(train + valid) == list(range(COUNT))
    assert len(valid) == 10
    assert valid == sorted(valid) != list(range(10))
    assert numbers(corpus.read("valid")[1]) == valid
    assert corpus.references("valid") == [corpus.read("valid")[1]]
    assert Selection(files, hold_out=10).read("valid") == corpus.read("valid")
    assert corpus.read("test") == files.read("test")
    assert corpus.exists("valid")
    assert not Selection(files).exists("valid")
    assert corpus.locate("valid", 3) == f"{files.root / 'train.de'}, line {valid[3] + 1}"


def test_limit_takes_the_first_training_examples(files: AlignedText) -> None:
    """After the validation split has been held out, which is therefore independent of the limit."""
    assert numbers(Selection(files, limit=3).read("train")[0]) == [0, 1, 2]
    assert numbers(Selection(files, limit=3).references("train")[0]) == [0, 1, 2]
    assert len(Selection(files, limit=3).read("test")[0]) == COUNT
    both, held_out = Selection(files, hold_out=10, limit=3), Selection(files, hold_out=10)
    assert both.read("train")[0] == held_out.read("train")[0][:3]
    assert both.read("valid") == held_out.read("valid")
    assert len(Selection(files, limit=1000).read("train")[0]) == COUNT
    for corpus in (
        Selection(files),
        Selection(files, limit=3),
        held_out,
        both,
        Selection(files, hold_out=10, limit=99),
    ):
        assert corpus.count("train") == len(corpus.read("train")[0])


@pytest.mark.parametrize("corpus", [ToyTranslation(20, 4, 4), ToyText(20, 4, 4)])
def test_generated_text_can_be_limited(corpus: Corpus) -> None:
    limited = Selection(corpus, limit=5)
    assert limited.read("train") == tuple(column[:5] for column in corpus.read("train"))
    assert limited.read("valid") == corpus.read("valid")
    assert limited.fingerprint("valid") == corpus.fingerprint("valid")


def test_several_references_are_kept() -> None:
    corpus = ToyTranslation(20, 4, 4, references=3)
    assert Selection(corpus).references("valid") == corpus.references("valid")
    assert len(corpus.references("valid")) == 3


def test_documents_are_held_out(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n".join(f"a\nb {number}" for number in range(9)))
    lines = Lines(str(tmp_path), "train.txt", "valid.txt", None)
    for source in (lines, FilesOrHub(lines, None, "card")):
        corpus = Selection(Documents(source), hold_out=2, limit=4)
        assert [len(corpus.read(split)[0]) for split in ("train", "valid")] == [4, 2]  # type: ignore[arg-type]


def test_fingerprints(files: AlignedText) -> None:
    """Unchanged without options; otherwise they depend on what decides the text of the split."""
    plain = Selection(files)
    assert plain.fingerprint("train") == files.fingerprint("train")
    options = [{}, {"limit": 3}, {"limit": 4}, {"hold_out": 3}, {"hold_out": 4}, {"hold_out": 3, "limit": 3}]
    assert len({Selection(files, **option).fingerprint("train") for option in options}) == len(options)
    assert Selection(files, hold_out=3).fingerprint("valid") == Selection(files, 3, 3).fingerprint("valid")
    assert Selection(files, 3).fingerprint("valid") not in {Selection(files, n).fingerprint("train") for n in (3, 4)}
    assert Selection(files, 3, 3).fingerprint("test") == files.fingerprint("test")
    assert Selection(files, 3, 3).describe()["hold_out"] == 3


def test_summary(files: AlignedText, tmp_path: Path) -> None:
    data = pairs(tmp_path / "cache", Selection(files, 10, 3))
    assert data.summary() == [
        "train: 3 examples, 10 held out as valid split, limited to the first 3",
        "valid: 10 examples, held out of train",
    ]
    assert pairs(tmp_path / "cache", ToyTranslation(20, 4, 4)).summary()[0] == "train: 20 examples"


def test_options_without_effect_are_refused(files: AlignedText) -> None:
    message = r"data\.hold_out=3, but there is a valid split: leave out data\.hold_out"
    with pytest.raises(UserError, match=message):
        Selection(ToyText(20, 4, 4), hold_out=3).read("train")
    (files.root / "valid.en").write_text("a\n")  # incomplete: not a reason to use other text
    for ask in (Selection(files, 3).read, Selection(files, 3).fingerprint):
        with pytest.raises(UserError, match=message):
            ask("valid")


@pytest.mark.parametrize(("key", "value"), [("hold_out", 0), ("limit", 0), ("limit", -1)])
def test_numbers_below_one_are_refused(files: AlignedText, key: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"data\.{key} must be at least 1, or null, got {value}"):
        Selection(files, **{key: value})


def test_something_must_be_left_to_train_on(files: AlignedText) -> None:
    with pytest.raises(UserError, match=r"data\.hold_out=40 leaves no training example: the train split has 40$"):
        Selection(files, hold_out=COUNT).read("valid")
