"""Exported models: the same outputs as the run to the bit, anywhere and without it; what cannot be used is refused."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer as Backend

import rdm
from rdm.app import export
from rdm.app.hub_models import EXPORTED_FILES
from rdm.app.model_card import data_licence, licence_id
from rdm.app.portable import missing_paths, portable_config
from rdm.app.run_folder import RunFolder
from rdm.data.tokenizer_file import GivenTokenizer
from rdm.data.toy_language import ToyLanguage
from rdm.errors import UserError
from tests.configs import config
from tests.same import assert_same
from tests.scripts import script
from tests.test_end_to_end import SMALL

PAIRS = [(source, targets[0]) for source, targets in ToyLanguage().pairs(60, 3)]
SOURCES = [source for source, _ in PAIRS[:5]]
SIZES = [each for each in SMALL if "corpus" not in each]
LICENCE = "CC BY-SA 4.0 | made for\n  <this> test"


@dataclass(frozen=True)
class World:
    """A run, its text, and the folder that was exported from a copy of the run which is gone."""

    run: Path
    text: Path
    exported: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("export")
    text, run, copy = folder / "text", folder / "run", folder / "copy"
    text.mkdir()
    (text / "card.md").write_text(f"# Own text\n\n- Licence: {LICENCE}\n- Counts: few\n")
    for split, pairs in {"train": PAIRS, "valid": PAIRS[:4], "test": PAIRS[:6]}.items():
        for side, suffix in enumerate(("de", "en")):
            (text / f"{split}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    corpus = ["data=text_pairs", "data.source=de", "data.target=en", "data/tokenizer=words"]
    places = [f"data.root={text}", f"data.train={text / 'train'}", f"data.cache={folder / 'cache'}", "best=val/loss"]
    script("train.py", *SIZES, *corpus, *places, f"hydra.run.dir={run}")
    script("evaluate.py", "-m", f"ckpt={run}", "decoding.steps=2,3")
    shutil.copytree(run, copy)
    script("-m", "rdm.export", f"ckpt={copy}", f"to={folder / 'first'}")
    shutil.rmtree(copy)
    (folder / "elsewhere").mkdir()
    shutil.move(folder / "first", folder / "elsewhere" / "model")
    return World(run, text, folder / "elsewhere" / "model")


@pytest.fixture
def copied(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.exported, tmp_path / "copied"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_python_api_gives_the_same(world: World) -> None:
    """Weights, texts with scores, likelihoods, and what result rows say about the model."""
    run, exported = rdm.load(world.run), rdm.load(world.exported)
    assert_same(run.system.state_dict(), exported.system.state_dict())
    outputs = [[replace(each, seconds=0) for each in model.generate(SOURCES, nbest=None)] for model in (run, exported)]
    assert outputs[0] == outputs[1]
    targets = [target for _, target in PAIRS[:5]]
    assert run.score(SOURCES, targets) == exported.score(SOURCES, targets)
    assert {**run.describe(), "run": ""} == {**exported.describe(), "run": ""}
    assert exported.run.recipe() == run.run.recipe() == RunFolder(world.run).recipe()
    assert exported.cost["seconds"] == run.cost["seconds"]
    assert rdm.load(world.exported / "model.safetensors").cost == exported.cost


def test_evaluation_gives_the_same_row(world: World, copied: Path) -> None:
    """It asks for the folder of the text, which the exported model does not know."""
    command = ("evaluate.py", f"ckpt={copied}", "decoding.steps=2")
    done = script(*command, code=2)
    assert done.stderr == "error: the exported model does not know where its data are: add data.root=<folder>\n"
    script(*command, f"data.root={world.text}")
    (new,), old = rows_of(copied), rows_of(world.run)[0]
    other = {"run", "evaluation", "hypotheses", "sentences_per_second", "training", "time", "commit", "data_overrides"}
    assert {key: new[key] for key in old.keys() - other} == {key: old[key] for key in old.keys() - other}
    hypotheses = [Path(row["hypotheses"]).read_text() for row in (new, old)]
    assert hypotheses[0] == hypotheses[1]


def test_generate_rescore_and_init(world: World, tmp_path: Path) -> None:
    text = f"text='{SOURCES[0]}'"
    shown = script("generate.py", f"ckpt={world.exported}", text).stdout
    assert shown == rdm.load(world.run).generate(SOURCES[:1])[0].text + "\n"
    ar, teacher = tmp_path / "ar", tmp_path / "teacher"
    options = ["trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling=null"]
    done = script("train.py", *SMALL, *options, "system=ar", f"init={world.exported}", f"hydra.run.dir={ar}")
    assert f"from {world.exported / 'model.safetensors'}" in done.stdout
    assert json.loads((ar / "versions.json").read_text())["initial_recipe"] == RunFolder(world.run).recipe()
    (ar / "metrics.csv").unlink()
    rdm.load(ar).export(teacher)
    rescored = script("generate.py", f"ckpt={world.exported}", text, f"rescore={teacher}").stdout
    assert rescored == rdm.load(world.run).generate(SOURCES[:1], rescore=rdm.load(ar))[0].text + "\n"


def test_contents(world: World) -> None:
    """No training state, no pickle, no path of the machine; tied tensors are stored once."""
    names = {str(file.relative_to(world.exported)) for file in world.exported.rglob("*") if file.is_file()}
    figures = {name for name in names if name.startswith("figures/")}
    assert names - figures == set(EXPORTED_FILES)
    assert {"figures/iterations.png", "figures/curve_train_loss.png", "figures/curve_val_loss.png"} <= figures
    for file in (world.exported / name for name in names):
        assert str(world.run.parent).encode() not in file.read_bytes(), file
    saved = yaml.safe_load((world.exported / "config.yaml").read_text())
    assert (saved["run_dir"], saved["data"]["root"], saved["data"]["cache"]) == (".", "???", "data/cache")
    assert (saved["data"]["train"], saved["data"]["test"]) == ("train", "test")
    record = json.loads((world.exported / "export.json").read_text())
    assert {"data.root=text", "data.train=train", "model.dim=32"} <= set(record["overrides"])
    assert (record["step"], record["average"], record["best"]) == (6, 1, False)
    with safe_open(world.exported / "model.safetensors", framework="pt") as weights:
        stored = set(weights.keys())
        assert weights.metadata()["format"] == "pt"
    all_names = rdm.load(world.run).system.state_dict().keys()
    assert stored < set(all_names)


def test_card(world: World) -> None:
    text = (world.exported / "README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    assert (front["library_name"], front["license"], front["language"]) == ("rdm", "cc-by-sa-4.0", ["de", "en"])
    assert [result.metric_type for result in ModelCard(text).data.eval_results] == ["sacrebleu", "chrf"]
    (index,) = front["model-index"]
    rows = rows_of(world.run)
    values = {metric["type"]: metric["value"] for metric in index["results"][0]["metrics"]}
    assert values == {name: entry["value"] for name, entry in rows[1]["metrics"].items()}
    for row in rows:
        for metric in row["metrics"].values():
            assert metric["signature"] in text
    assert "2 iterations | 3 iterations" in text
    assert "Licence of the data: CC BY-SA 4.0 | made for <this> test" in text
    first = json.loads(Path(rows[1]["hypotheses"]).read_text().splitlines()[0])
    assert f"| {first['source']} | {first['references'][0]} | {first['hypothesis']} |" in text
    for image in (line[line.index("(") + 1 : -1] for line in text.splitlines() if line.startswith("![")):
        assert (world.exported / image).is_file()
    assert 'import rdm\nmodel = rdm.load("first")' in text
    assert all(name in text for name in (rows[0]["training"]["machine"], rows[0]["commit"], "python train.py "))


def test_card_without_results_shows_validation_samples(world: World, tmp_path: Path) -> None:
    """Rows of other weights are not results of these."""
    run = Path(shutil.copytree(world.run, tmp_path / "run"))
    (run / "metrics.csv").unlink()
    first = next(file for file in sorted((run / "checkpoints").glob("step_*")) if "3" in file.name)
    text = (rdm.load(first).export(tmp_path / "exported") / "README.md").read_text()
    assert "## Results" not in text
    assert "as decoded in training at step 3" in text
    assert f"| {PAIRS[0][0]} | {PAIRS[0][1]} | " in text


def test_averaged_and_best_weights(world: World, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world.run, tmp_path / "run"))
    (run / "metrics.csv").unlink()
    averaged = rdm.load(run, average=2)
    exported = rdm.load(averaged.export(tmp_path / "averaged"))
    assert_same(averaged.system.state_dict(), exported.system.state_dict())
    assert exported.average == 2
    assert "mean of the weights of 2 checkpoints" in (tmp_path / "averaged" / "README.md").read_text()
    script("-m", "rdm.export", f"ckpt={run}", f"to={tmp_path / 'best'}", "best=true")
    assert_same(rdm.load(run, best=True).system.state_dict(), rdm.load(tmp_path / "best").system.state_dict())
    for options, words in (({"average": 2}, "average=2"), ({"best": True}, "best=true")):
        with pytest.raises(UserError, match=f"{words}: .* is an exported model, which has one set of weights"):
            rdm.load(tmp_path / "best", **options)  # type: ignore[arg-type]


MISTAKES = [
    (["ckpt={run}"], "to: give ckpt=<run> and to=<folder>"),
    (["ckpt={run}", "to={text}"], "to: {text} is not empty; name a new folder"),
    (["ckpt={run}", "to={run}/config.yaml"], "to: {run}/config.yaml is a file; name a new folder"),
    (["ckpt={run}", "to={text}/new", "average=two"], "average must be a number of checkpoints, got two"),
    (["ckpt={run}", "to={text}/new", "best=yes"], "best must be true or false, got yes"),
    (["ckpt={run}", "to={text}/new", "step=3"], "step=3: there is no such option; give ckpt=..., to=..."),
    (["ckpt={run}", "to={text}/new", "to={text}/other"], "to is given twice"),
    (["ckpt=nowhere", "to={text}/new"], "ckpt: nowhere does not exist"),
    (["ckpt={exported}", "to={text}/new"], "{exported} is an exported model already: copy it"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes(arguments: list[str], message: str, world: World) -> None:
    places = {"run": world.run, "text": world.text, "exported": world.exported}
    done = script("-m", "rdm.export", *(each.format(**places) for each in arguments), code=2)
    assert done.stderr.startswith(f"error: {message.format(**places)}")
    assert len(done.stderr.splitlines()) == 1
    assert not (world.text / "new").exists()


def test_help() -> None:
    assert "average=5" in script("-m", "rdm.export", "--help").stdout


def test_training_is_not_continued_from_an_exported_model(world: World, tmp_path: Path) -> None:
    done = script("train.py", f"ckpt={world.exported}", f"hydra.run.dir={tmp_path / 'run'}", code=2)
    assert "is an exported model without training state; start a new run with init=" in done.stderr
    assert not (tmp_path / "run").exists()


def test_failed_export_leaves_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(export, "model_card", fail)
    with pytest.raises(OSError, match="disk full"):
        rdm.load(world.run).export(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="was loaded with int8=True"):
        rdm.load(world.run, int8=True).export(tmp_path / "new")


def test_damaged_weights(copied: Path) -> None:
    """One line for a file that is cut, has other content, other tensors, or belongs to another configuration."""
    file = copied / "model.safetensors"
    content = file.read_bytes()
    with safe_open(file, framework="pt") as opened:
        # Copies: the file is mapped into memory, and is overwritten below.
        metadata, tensors = opened.metadata(), {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118

    def message() -> str:
        with pytest.raises(UserError) as caught:
            rdm.load(copied)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    for damaged in (content[:-10], content[:20], b"", b"\x80\x04."):
        file.write_bytes(damaged)
        assert "is not a readable safetensors file" in message()
    save_file(tensors, file)
    assert "has weights of format None, but this version of rdm reads format 1" in message()
    kept = json.loads(metadata["rdm"])
    for changes, words in (
        ({"format": 2}, "has weights of format 2"),
        ({"tied": {"a": "b"}}, "its metadata do not describe a model"),
        ({"global_step": "six"}, "its metadata do not describe a model"),
        ({"hyper_parameters": {**kept["hyper_parameters"], "tokenizer": "x"}}, "the tokenizer of"),
        ({"tied": {}}, "does not fit the configuration beside it"),
    ):
        save_file(tensors, file, metadata={"format": "pt", "rdm": json.dumps({**kept, **changes})})
        assert words in message()
    first = next(iter(tensors))
    save_file({**tensors, first: torch.zeros(3)}, file, metadata=metadata)
    assert "does not fit the configuration beside it" in message()
    file.write_bytes(content)
    rdm.load(copied)
    changed = OmegaConf.load(copied / "config.yaml")
    changed.model.dim = 64
    OmegaConf.save(changed, copied / "config.yaml")
    assert "was trained with system.denoiser.network.dim=32, but here it is 64" in message()
    (copied / "export.json").write_text('{"format": 7}')
    assert "has format 7, but this version of rdm reads format 1" in message()


def test_classes_of_other_packages(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that names them is refused unless their package is trusted; its card says so."""
    (tmp_path / "own_schedules.py").write_text("from rdm.decoding.schedule import Linear\n\nclass Own(Linear): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    run = Path(shutil.copytree(world.run, tmp_path / "run"))
    (run / "metrics.csv").unlink()
    changed = OmegaConf.load(run / "config.yaml")
    changed.decoding.schedule = {"_target_": "own_schedules.Own"}
    OmegaConf.save(changed, run / "config.yaml")
    exported = rdm.load(run, trust=["own_schedules", "unused"]).export(tmp_path / "exported")
    assert 'rdm.load("exported", trust="own_schedules")' in (exported / "README.md").read_text()
    with pytest.raises(UserError, match="is not a class of this package; add trust=own_schedules"):
        rdm.load(exported)
    trusted = rdm.load(exported, trust="own_schedules")
    assert trusted.generate(SOURCES[:1])[0].text == rdm.load(world.run).generate(SOURCES[:1], schedule="linear")[0].text


def test_paths_are_removed_from_a_configuration() -> None:
    corpus = ["data=text_pairs", "data.source=de", "data.target=en", "data/tokenizer=file"]
    places = ["data.tokenizer.path=/a/tokenizer.json", "data.root=/a/text", "data.train=[/b/one.tsv,two.tsv]"]
    full = config(*corpus, *places, "data.valid={de: /c/x.de, en: y.en}", "init=/a/run", "logger=csv")
    found = portable_config(full)
    assert not any(place in OmegaConf.to_yaml(found) for place in ("/a/", "/b/", "/c/"))
    assert (found.data.train, found.data.valid) == (["one.tsv", "two.tsv"], {"de": "x.de", "en": "y.en"})
    assert (found.init, found.data.tokenizer.path, "logger" in found) == (None, "tokenizer.json", False)
    assert missing_paths(found.data) == ["data.root"]
    relative = config("data=iwslt14_de_en")
    assert portable_config(relative).data == relative.data


def test_licences_of_the_data_cards() -> None:
    names = ("iwslt14_de_en", "wikitext2", "toy_text")
    stated = {name: data_licence(OmegaConf.create({"data": {"name": name}})) for name in names}
    assert stated["iwslt14_de_en"] == "CC BY-NC-ND 4.0, as TED states for its talks."
    assert licence_id(str(stated["iwslt14_de_en"])) == "cc-by-nc-nd-4.0"
    assert licence_id(str(stated["wikitext2"])) == "other"  # of no version
    assert stated["toy_text"] is None


def test_tokenizer_loads_in_other_libraries(world: World) -> None:
    """And here: an exported folder, its file, and the file of a transformers tokenizer are tokenizers for new data."""
    ids = rdm.load(world.run).codec.tokenizer.encode(SOURCES)
    file = world.exported / "tokenizer.json"
    assert [each.ids for each in Backend.from_file(str(file)).encode_batch(SOURCES)] == ids
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), pad_token="<pad>", unk_token="<unk>")
    assert fast(SOURCES)["input_ids"] == ids
    assert fast.decode(ids[0], skip_special_tokens=True) == SOURCES[0]
    fast.save_pretrained(world.text / "saved")
    for place in (world.exported, file, world.text / "saved"):
        assert GivenTokenizer(str(place))([]).encode(SOURCES) == ids
