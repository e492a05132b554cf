"""evaluate.py and generate.py on other data than the run was trained on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rdm.app.composition import compose_config
from rdm.app.open_model import load
from rdm.data.toy_language import ToyLanguage
from rdm.errors import UserError
from tests.scripts import script
from tests.test_end_to_end import SMALL

SMALLEST = [each for each in SMALL if not each.startswith("data.")]
SMALLEST += ["trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling=null"]


def write_pairs(folder: Path, name: str, count: int, seed: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    pairs = ToyLanguage().pairs(count, seed)
    (folder / f"{name}.de").write_text("".join(f"{source}\n" for source, _ in pairs))
    (folder / f"{name}.en").write_text("".join(f"{target}\n" for _, (target,) in pairs))
    return [source for source, _ in pairs]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on user files, and other files."""
    world = tmp_path_factory.mktemp("world")
    for split, count, seed in (("train", 100, 1), ("valid", 4, 2), ("test", 4, 3)):
        write_pairs(world / "own", split, count, seed)
    write_pairs(world / "other", "test", 5, 4)
    write_pairs(world / "other", "more", 6, 5)
    corpus = ["data=text_pairs", f"data.root={world / 'own'}", "data.source=de", "data.target=en"]
    cache = f"data.cache={world / 'cache'}"
    script("train.py", *SMALLEST, *corpus, cache, "data.tokenizer.size=600", f"hydra.run.dir={world / 'run'}")
    return world


def evaluate(world: Path, *overrides: str) -> tuple[dict[str, Any], list[str]]:
    """The last result row and the sources that were decoded."""
    script("evaluate.py", f"ckpt={world / 'run'}", "decoding.steps=2", *overrides)
    row = json.loads((world / "run" / "results.jsonl").read_text().splitlines()[-1])
    lines = Path(row["hypotheses"]).read_text().splitlines()
    return row, [json.loads(line)["source"] for line in lines]


def sources(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_evaluate_other_files(world: Path) -> None:
    """``data.root`` and ``data.test`` change the text that is scored, and the row records them."""
    own, decoded = evaluate(world)
    assert decoded == sources(world / "own" / "test.de")
    assert "data_overrides" not in own
    row, decoded = evaluate(world, f"data.root={world / 'other'}")
    assert decoded == sources(world / "other" / "test.de")
    assert row["data_overrides"] == {"root": str(world / "other")}
    assert row["text"] != own["text"]
    assert row["recipe"] == own["recipe"]
    prefixed, decoded = evaluate(world, f"+data.root={world / 'other'}", "++data.test=more")
    assert decoded == sources(world / "other" / "more.de")
    assert prefixed["data_overrides"] == {"root": str(world / "other"), "test": "more"}
    assert len({row["evaluation"] for row in (own, row, prefixed)}) == 3
    several, decoded = evaluate(world, f"data.root={world / 'other'}", "data.test=[test,more]")
    assert decoded == sources(world / "other" / "test.de") + sources(world / "other" / "more.de")
    assert several["data_overrides"]["test"] == ["test", "more"]


def test_evaluate_another_data_set(world: Path) -> None:
    """With the run's codec; metrics are those of the other data set."""
    where = [f"data.root={world / 'other'}", "data.source=de", "data.target=en"]
    row, decoded = evaluate(world, "data=text_pairs", *where)
    assert decoded == sources(world / "other" / "test.de")
    assert row["choices"]["data"] == "text_pairs"
    toy, decoded = evaluate(world, "data=toy_paraphrase", "data.corpus.test_size=3", f"data.cache={world / 'cache'}")
    assert (toy["data"], toy["sentences"], len(decoded)) == ("toy_paraphrase", 3, 3)
    assert toy["data_overrides"] == {"corpus.test_size": 3, "cache": str(world / "cache")}
    assert "rouge_l" in toy["metrics"]


def test_generate_from_other_files(world: Path) -> None:
    done = script("generate.py", f"ckpt={world / 'run'}", f"data.root={world / 'other'}", "sentences=5")
    shown = [line.removeprefix("source:    ") for line in done.stdout.splitlines() if line.startswith("source: ")]
    assert shown == sources(world / "other" / "test.de")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.rooot=x"], "data.rooot: the data of this run has no such key; it has name, "),
        (["+data.rooot=x"], "data.rooot: the data of this run has no such key"),
        (["data.corpus.foo=x"], "data.corpus.foo: the data of this run has no such key; it has root"),
        (["data.max_tokens=5"], "data.max_tokens has no effect on a trained model: it is used in training only"),
        (["data.tokenizer.size=5"], "data.tokenizer.size has no effect on a trained model"),
        (["data=toy_paraphrase", "data.vocabulary=5"], "data.vocabulary has no effect on a trained model"),
        (["data.root=nowhere"], "there is no nowhere/test.de (nor test.de.gz)"),
        (["data=text_pairs"], "data.source: a value is needed"),
        (["data=toy_text"], "data: the model was trained on pairs, but these are text without sources"),
    ],
)
def test_overrides_that_cannot_work_are_refused(overrides: list[str], message: str, world: Path) -> None:
    config = compose_config("evaluate", overrides)
    model = load(str(world / "run"))
    typed = [each.split("=")[0].lstrip("+").removeprefix("data.") for each in overrides if "data." in each]
    with pytest.raises(UserError, match=re.escape(message)):
        model.data(model.data_config(config.data, typed)).questions("test")


@pytest.mark.parametrize("name", ["evaluate.py", "generate.py"])
def test_refusal_by_the_scripts(name: str, world: Path) -> None:
    refused = script(name, f"ckpt={world / 'run'}", "+data.rooot=x", code=2).stderr
    assert refused.startswith("error: data.rooot: the data of this run has no such key; it has name, ")
    assert refused.count("\n") == 1
    refused = script(name, f"ckpt={world / 'run'}", "data=toy_paraphrase", "data.max_tokens=5", code=2).stderr
    assert refused == "error: data.max_tokens has no effect on a trained model: it is used in training only\n"


def test_training_needs_data(tmp_path: Path) -> None:
    refused = script("train.py", "data=as_trained", f"hydra.run.dir={tmp_path}", code=2).stderr
    assert refused.startswith("error: data=as_trained is for trained models; choose another")


@pytest.mark.parametrize("prefix", ["", "+"])
def test_tokenizer_of_a_trained_model_cannot_be_chosen(world: Path, prefix: str) -> None:
    refused = script("evaluate.py", f"ckpt={world / 'run'}", f"{prefix}data/tokenizer=words", code=2).stderr
    assert "use +" not in refused
    assert len(refused.splitlines()) == 1
