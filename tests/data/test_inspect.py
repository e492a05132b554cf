"""``python -m rdm.data.inspect``, run in this process: the printed statistics are correct."""

import re
import sys
from pathlib import Path

import pytest

from rdm.app.errors import explain
from rdm.data import inspect
from rdm.data.toy import ToyText, ToyTranslation
from tests.data.helpers import open_ended, pairs

SMALL = ["seed=0", "data.corpus.train_size=40", "data.corpus.valid_size=6", "data.corpus.test_size=6"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Return a function that runs it with overrides and returns its output."""
    monkeypatch.setenv("COLUMNS", "400")  # wide enough that no line is wrapped

    def run(*overrides: str) -> str:
        monkeypatch.setattr(sys, "argv", ["inspect", f"data.cache={tmp_path}", *overrides])
        inspect.main()
        return capsys.readouterr().out

    return run


def cells(page: str, first: str) -> list[str]:
    """Return the cells of the table row that begins with ``first``."""
    (row,) = [line for line in page.splitlines() if re.match(rf"\s*[│┃]\s*{first}\s*[│┃]", line)]
    return [cell.strip() for cell in re.split("[│┃]", row)[1:-1]]


def padding_share(page: str) -> float:
    return float(re.search(r"([\d.]+)% padding", page)[1])  # type: ignore[index]


def test_translation(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = run("data=toy_translation", *SMALL, "data.corpus.references=2", "data.max_tokens=200")
    data = pairs(tmp_path, ToyTranslation(40, 6, 6, references=2), max_tokens=200)
    assert page.startswith(f"toy_translation: TranslationDataModule, vocabulary of {data.vocab.size:,}")
    sources, targets = data.corpus.read("train")
    sizes = [[len(text.split()) + 2 for text in side] for side in (sources, targets)]
    split, count, left_out, *lengths, unknown, shared = cells(page, "train")
    assert (split, count, left_out, unknown, shared) == ("train", "40", "nothing", "0.00%", "")
    for printed, side in zip(lengths, sizes, strict=True):
        mean, longest = printed.removesuffix(")").split(" (")
        assert float(mean) == pytest.approx(sum(side) / 40, abs=0.051)
        assert int(longest) == max(side)
    assert cells(page, "valid")[:3] == ["valid", "6", "nothing"]
    assert cells(page, "test")[-1] == "0"
    batches = list(data.train_dataloader())
    sides = [side for batch in batches for side in (batch.source, batch.target)]
    real, positions = sum(map(sum, sizes)), sum(side.numel() for side in sides)
    assert f"One epoch: {len(batches)} batches of {real / len(batches):,.0f} tokens on average" in page
    assert padding_share(page) == pytest.approx(100 * (1 - real / positions), abs=0.051)
    assert f"{int((data.target_counts() > 0).sum())} of {data.vocab.size} ids occur in training targets." in page
    assert "Most frequent in targets: the " in page


def test_first_batch_is_shown_decoded(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = run("data=toy_translation", *SMALL, "data.max_tokens=200")
    data = pairs(tmp_path, ToyTranslation(40, 6, 6), max_tokens=200)
    batch = next(iter(data.train_dataloader()))
    assert f"The first batch: source {list(batch.source.shape)}, target {list(batch.target.shape)}" in page
    sources, targets = data.corpus.read("train")
    for index in batch.ids[:3].tolist():
        assert f"  source: {sources[index]}\n" in page
        assert f"          <bos> {sources[index]} <eos>\n" in page
        assert f"  target: {targets[index]}\n" in page
    assert "<pad>" not in page


def test_histogram_counts_every_example(run) -> None:  # type: ignore[no-untyped-def]
    page = run("data=toy_translation", *SMALL)
    table = page[page.index("Lengths of the training examples") :]
    rows = re.findall(r"│\s*\d+-\d+\s*│\s*(\d+)\s*│[ █]*│\s*(\d+)\s*│", table)
    assert len(rows) == 12
    assert [sum(map(int, side)) for side in zip(*rows, strict=True)] == [40, 40]


def test_text(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = run("data=toy_text", *SMALL, "data.length=32", "data.prompt=8")
    data = open_ended(tmp_path, ToyText(40, 6, 6), 32, prompt=8, max_sentences=8)
    assert page.startswith(f"toy_text: OpenEndedDataModule, vocabulary of {data.vocab.size}")
    (left,) = data.left_out("train").values()
    windows = len(data.examples("train"))
    remainder = f"{left} tokens left out at the end" if left else "nothing"
    assert cells(page, "train") == ["train", str(windows), remainder, "0.0 (0)", "32.0 (32)", "0.00%", ""]
    assert f"batches of {windows * 32 / -(-windows // 8):,.0f} tokens on average" in page
    assert padding_share(page) == 0
    batch = next(iter(data.train_dataloader()))
    assert f"The first batch: source [{len(batch.ids)}, 0], target [{len(batch.ids)}, 32]" in page
    assert f"          {' '.join(data.codec.pieces(batch.target[0].tolist()))}\n" in page
    assert "<eos>" in page


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("null", "there is no test split: set its file with data.test=..."),
        ("'[/new]'", "there is no {root}/[/new].de (nor new].de.gz)"),
    ],
)
def test_an_unusable_split_is_reported_and_the_others_are_shown(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, test: str, message: str
) -> None:
    """Brackets in a file name are not interpreted as markup."""
    for side in ("de", "en"):
        for split in ("train", "valid"):
            (tmp_path / f"{split}.{side}").write_text("a b\nc\n")
    files = ["data=text_pairs", f"data.root={tmp_path}", "data.source=de", "data.target=en", f"data.test={test}"]
    page = run(*files, "data.tokenizer.size=270")
    assert message.format(root=tmp_path) in page
    assert cells(page, "valid")[-1] == "2"
    assert "The first batch: source [2, " in page


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=nothing"], "data/nothing"),
        (["data.max_tokens=many"], "data.max_tokens: 'many' is not a whole number"),
        (["data=text_pairs", "data.source=de"], "data.target"),
        (["data=plain_text", "data.root=nowhere"], "there is no nowhere/train.txt"),
    ],
)
def test_errors_are_one_line(run, overrides: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Exception) as caught:  # noqa: PT011 (also Hydra's own)
        run(*overrides)
    printed = explain(caught.value)
    assert printed is not None
    assert message in printed
    assert "\n" not in printed
