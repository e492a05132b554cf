"""The scripts with a user's files: formats, held-out validation, limit and tokenizer files."""

import json
import shutil
from pathlib import Path

import pytest

from rdm.app.run_folder import RunFolder
from rdm.data.tokenizer import BytePairs
from tests.scripts import script

COUNT = 24
SHORT = ["trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling.sentences=2", "model.dim=16"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs as TSV, CSV and aligned files, documents as JSON lines, and a tokenizer."""
    folder = tmp_path_factory.mktemp("files")
    pairs = [(f"haus {number} baum", f"house {number} tree") for number in range(COUNT)]
    (folder / "a.tsv").write_text("de\ten\n" + "".join(f"{de}\t{en}\n" for de, en in pairs[:12]))
    (folder / "b.csv").write_text(
        "id,en,de\n" + "".join(f'{i},"{en}, x",{de}\n' for i, (de, en) in enumerate(pairs[12:]))
    )
    (folder / "test.german").write_text("".join(f"{de}\n" for de, _ in pairs[:4]))
    (folder / "test.english").write_text("".join(f"{en}\n" for _, en in pairs[:4]))
    documents = [{"body": {"text": f"{de} {en}\n\n{en}"}} for de, en in pairs * 4]
    (folder / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    BytePairs(300)([text for pair in pairs for text in pair]).save(folder / "my_tokenizer")
    return folder


def options(files: Path, *more: str) -> list[str]:
    root = [f"data.root={files}", f"data.cache={files / 'cache'}"]
    return ["data=text_pairs", *root, "data.source=de", "data.target=en", *SHORT, *more]


def train(run: Path, *overrides: str) -> str:
    return script("train.py", *overrides, f"hydra.run.dir={run}").stdout


def test_tables_held_out_and_limited_with_a_tokenizer_file(files: Path, tmp_path: Path) -> None:
    """The recipe of a result row depends on the limit; the run does not need the tokenizer file."""
    common = ["data.train=[a.tsv,b.csv]", "data.test={de: test.german, en: test.english}", "data.hold_out=4"]
    tokenizer = ["data/tokenizer=file", f"data.tokenizer.path={files / 'my_tokenizer'}"]
    printed = train(tmp_path / "all", *options(files, *common, *tokenizer))
    assert "train: 20 examples, 4 held out as valid split\nvalid: 4 examples, held out of train" in printed
    again = ["data/tokenizer=file", f"data.tokenizer.path={tmp_path / 'all'}"]
    printed = train(tmp_path / "less", *options(files, *common, *again, "data.limit=10"))
    assert "train: 10 examples, 4 held out as valid split, limited to the first 10" in printed
    script("evaluate.py", f"ckpt={tmp_path / 'all'}", "decoding.steps=2")
    row = json.loads((tmp_path / "all" / "results.jsonl").read_text())
    assert (row["recipe"], row["sentences"]) == (RunFolder(tmp_path / "all").recipe(), 4)
    assert row["recipe"] != RunFolder(tmp_path / "less").recipe()
    prints = [json.loads((tmp_path / name / "versions.json").read_text())["data"] for name in ("all", "less")]
    assert prints[0]["train"] != prints[1]["train"]
    assert prints[0]["valid"] == prints[1]["valid"]
    assert prints[0]["tokenizer"] == prints[1]["tokenizer"]
    shutil.move(files / "my_tokenizer", files / "moved")
    done = script("generate.py", f"ckpt={tmp_path / 'all'}", "text='haus 3 baum'", "decoding.steps=2")
    shutil.move(files / "moved", files / "my_tokenizer")
    assert done.stderr == ""


def test_documents_in_a_table(files: Path, tmp_path: Path) -> None:
    data = ["data=plain_text", f"data.root={files}", f"data.cache={files / 'cache'}", "data.train=*.jsonl"]
    lengths = ["data.length=8", "data.prompt=2", "data.column=body.text", "data.vocabulary=300"]
    splits = ["data.hold_out=20", "data.limit=50", "data.test=null"]
    short = [option for option in SHORT if option != "model.dim=16"]
    printed = train(tmp_path / "run", "system=lm", "model=llama_tiny", *data, *lengths, *splits, *short)
    assert "20 held out as valid split, limited to the first 50" in printed


def test_generated_text_can_be_limited(tmp_path: Path) -> None:
    assert "train: 30 examples, limited to the first 30" in train(tmp_path / "run", "data.limit=30", *SHORT)


PAIRS = ["data=text_pairs", "data.root={files}", "data.cache={files}/cache", "data.source=de", "data.target=en"]
TABLE = [*PAIRS, "data.train=a.tsv"]
REFUSED: list[tuple[list[str], str]] = [
    (["data.examples=50"], "data.examples has no effect: this configuration does not read it; data.limit=<number>"),
    (["+data.limits=50"], "data.limits has no effect: this configuration does not read it; did you mean limit?"),
    (["data.vocabulary=50"], "data.vocabulary has no effect: this configuration does not read it"),
    (["data.hold_out=5"], "data.hold_out=5, but there is a valid split: leave out data.hold_out"),
    ([*TABLE, "data.hold_out=2", "data.valid=typo.tsv"], "data.valid=typo.tsv and data.hold_out cannot be combined"),
    (["data.limit=0"], "data.limit must be at least 1, or null, got 0"),
    (["data.limit=ten"], "data.limit: 'ten' is not a whole number or null"),
    ([*TABLE, "data.hold_out=12"], "data.hold_out=12 leaves no training example: the train split has 12"),
    ([*TABLE, "data.hold_out=2", "data.source=german"],
     "a.tsv, line 2 needs the columns 'german' and 'en', each with a text; it has the columns de, en"),
    ([*PAIRS, "data.train=test.german"], "test.german is a single file, but no table (.csv, .jsonl, .parquet, .tsv)"),
    ([*PAIRS, "data.train=[x*.tsv]"], "data.train=['x*.tsv']: no file in"),
    ([*PAIRS, "data.train={de: test.german}"], "data.train must name files for de and en, got de"),
    ([*TABLE], "valid.de (nor valid.de.gz)"),
    ([*TABLE, "data.hold_out=2", "data/tokenizer=file"], "data.tokenizer.path: a value is needed"),
    ([*TABLE, "data.hold_out=2", "data/tokenizer=file", "data.tokenizer.path={files}/a.tsv"],
     "a.tsv is not a tokenizer.json, a SentencePiece model or a run folder"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_wrong_options_are_refused_in_one_line(files: Path, tmp_path: Path, overrides: list[str], message: str) -> None:
    given = [override.replace("{files}", str(files)) for override in overrides]
    done = script("train.py", *given, f"hydra.run.dir={tmp_path / 'run'}", code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
