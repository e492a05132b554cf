"""Classes of the user's own, in files outside the package: router, metric, data set, system, callback, logger."""

import json
from pathlib import Path

import pytest

import rdm
from tests.scripts import script
from tests.test_contributing import example
from tests.test_end_to_end import SMALL

PARTS = '''
from dataclasses import replace
from pathlib import Path

from pytorch_lightning import Callback
from pytorch_lightning.loggers import Logger

from rdm.data.corpus import Corpus
from rdm.data.toy import ToyTranslation
from rdm.evaluation.metrics.base import Scorer, Texts
from rdm.systems.diffusion import DiffusionSystem


class Words(Scorer):
    name = "words"

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def score(self, texts: Texts) -> tuple[float, str]:
        return self.factor * sum(len(text.split()) for text in texts.hypotheses), "total"


class Reversed(Corpus):
    """Translation into the reversed source."""

    def __init__(self, size: int) -> None:
        self.toy = ToyTranslation(train_size=size, valid_size=4, test_size=4)

    def read(self, split):
        sources = self.toy.read(split)[0]
        return sources, [" ".join(reversed(source.split())) for source in sources]

    def fingerprint(self, split):
        return "reversed" + self.toy.fingerprint(split)


class Scaled(DiffusionSystem):
    def loss(self, batch, generator=None):
        terms = super().loss(batch, generator)
        return [replace(term, total=2 * term.total) for term in terms]


class Count(Callback):
    def __init__(self, file: str) -> None:
        self.file, self.steps = Path(file), 0

    def on_train_batch_end(self, *_):
        self.steps += 1
        self.file.write_text(str(self.steps))


class Lines(Logger):
    """Appends the names of metrics to a file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    name, version = "lines", "1"

    def log_hyperparams(self, *_, **__):
        pass

    def log_metrics(self, metrics, step=None):
        with self.file.open("a") as stream:
            stream.write(" ".join(metrics) + "\\n")
'''
SYSTEM = """# @package _global_
defaults: [diffusion]
system:
  _target_: my_parts.Scaled
"""
DATA = """
defaults: [_pairs, {tokenizer: words}, {/metrics@metrics: translation}, _self_]
name: reversed
corpus:
  _target_: my_parts.Reversed
  size: 40
module:
  _target_: rdm.data.pairs.PairsDataModule
"""
TINY = [each for each in SMALL if not each.startswith("data.corpus")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user with two modules and configuration files."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "my_router.py").write_text(example("python"))
    (folder / "my_parts.py").write_text(PARTS)
    for group, name, text in (
        ("decoding", "margin", example("yaml")),
        ("system", "scaled", SYSTEM),
        ("data", "reversed", DATA),
    ):
        (folder / "conf" / group).mkdir(parents=True)
        (folder / "conf" / group / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def run(project: Path) -> Path:
    """A run in which everything that can be the user's is."""
    script(
        "train.py",
        "--config-dir=conf",
        "system=scaled",
        "data=reversed",
        "decoding=margin",
        "decoding.transition.power=2",
        "+callbacks.count._target_=my_parts.Count",
        "+callbacks.count.file=steps.txt",
        "+callbacks.stop._target_=pytorch_lightning.callbacks.EarlyStopping",
        "+callbacks.stop.monitor=val/loss",
        "+callbacks.stop.divergence_threshold=0.0",  # any loss is above it: stops after the first validation
        "+logger.lines._target_=my_parts.Lines",
        "+logger.lines.file=lines.txt",
        *TINY,
        "hydra.run.dir=run",
        folder=project,
    )
    return project / "run"


def test_callbacks_and_loggers_of_the_user(run: Path) -> None:
    assert (run.parent / "steps.txt").read_text() == "3"
    assert "val/loss" in (run.parent / "lines.txt").read_text()


def test_a_run_with_foreign_classes_says_so_and_can_be_trusted(run: Path) -> None:
    refused = script("evaluate.py", "ckpt=run", folder=run.parent, code=2).stderr
    assert refused == (
        "error: run/config.yaml: data.corpus._target_: my_parts.Reversed is not a class of this package; "
        "add trust=my_parts if code of that package may be run\n"
    )
    refused = script("evaluate.py", "ckpt=run", "trust=my_parts", folder=run.parent, code=2).stderr
    assert "my_router.Margin is not a class of this package; add trust=my_router" in refused
    words = ["metrics=translation", "+metrics.words._target_=my_parts.Words", "+metrics.words.factor=2"]
    script("evaluate.py", "ckpt=run", "trust=[my_parts,my_router]", "decoding.steps=2", *words, folder=run.parent)
    (row,) = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert row["decoding"]["transition"] == {"class": "my_router.Margin", "power": 2.0}
    lines = (run.parent / row["hypotheses"]).read_text().splitlines()
    words_decoded = sum(len(json.loads(line)["hypothesis"].split()) for line in lines)
    assert row["metrics"]["words"]["value"] == 2 * words_decoded
    assert row["metrics"]["words"]["settings"] == {"class": "my_parts.Words", "factor": 2.0}
    assert (row["data"], row["system"]) == ("reversed", "rdm_absorbing")


def test_a_run_with_foreign_classes_is_continued_only_if_they_are_trusted(run: Path) -> None:
    continued = ["--config-dir=conf", "ckpt=run", "trainer.max_steps=7", "hydra.run.dir=longer"]
    refused = script("train.py", *continued, folder=run.parent, code=2).stderr
    assert "+callbacks.count._target_: my_parts.Count is not a class of this package; add trust=my_parts" in refused
    trusted = "trust=[my_parts,pytorch_lightning]"
    done = script("train.py", *continued, trusted, "~callbacks.stop", folder=run.parent)
    assert "resuming from" in done.stdout


def test_python_api_trusts_named_packages(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rdm.UserError, match="add trust=my_parts"):
        rdm.load(run)
    monkeypatch.syspath_prepend(run.parent)
    model = rdm.load(run, trust=["my_parts", "my_router"])
    assert type(model.system).__name__ == "Scaled"
    assert model.generate(["a"])[0].text is not None


def test_router_on_the_command_line_needs_no_trust(project: Path) -> None:
    """The run has only our classes; the command names the user's."""
    script("train.py", *SMALL, "trainer.max_steps=3", "hydra.run.dir=plain", folder=project)
    command = ["evaluate.py", "ckpt=plain", "limit=2", "decoding.steps=2"]
    script(*command, "--config-dir=conf", "decoding=margin", "decoding.transition.power=3", folder=project)
    script(*command, "decoding.transition._target_=my_router.Margin", folder=project)
    rows = [json.loads(line) for line in (project / "plain" / "results.jsonl").read_text().splitlines()]
    assert [row["decoding"]["transition"]["power"] for row in rows] == [3.0, 1.0]
    assert [row["decoding"]["transition"]["class"] for row in rows] == ["my_router.Margin"] * 2
    for target, reason in {
        "my_routr.Margin": "cannot find my_routr.Margin: there is no module my_routr here or in the Python path",
        "my_router.Margn": "cannot find my_router.Margn: module 'my_router' has no attribute 'Margn'",
        "my_router.torch": "my_router.torch is neither a class nor a function",
        "my_parts.Words": "decoding.transition: Words is not a Transition",
    }.items():
        refused = script(*command, f"decoding.transition._target_={target}", code=2, folder=project).stderr
        assert refused.startswith("error: ")
        assert reason in refused
        assert len(refused.splitlines()) == 1
