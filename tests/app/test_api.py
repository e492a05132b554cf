"""The Python API: the same outputs as the scripts to the bit, options by name, own objects, mistakes in one line."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import rdm
from rdm.data.toy_language import ToyLanguage
from rdm.decoding import Commit, Linear, Router, Sampler, State, actions, top_k
from rdm.evaluation.metrics.corpus import SacreBleu
from tests.scripts import ROOT, script
from tests.test_end_to_end import SMALL

SOURCES = [source for source, _ in ToyLanguage().pairs(7, 3)]
TEXT = [
    "system=lm",
    "data=toy_text",
    "data.length=24",
    "model.dim=32",
    "model.hidden=32",
    "trainer.max_steps=2",
    "trainer.val_check_interval=2",
    "callbacks.progress=null",
    "callbacks.sampling=null",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "run"
    script("train.py", *SMALL, f"hydra.run.dir={folder}")
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> rdm.Model:
    return rdm.load(run, device="cpu")


def test_import_is_fast_and_loads_no_torch() -> None:
    code = "import sys, rdm; assert not {'torch', 'hydra', 'numpy'} & set(sys.modules), 'slow'; rdm.load; dir(rdm)"
    subprocess.run([sys.executable, "-c", code.partition("; rdm.load")[0]], cwd=ROOT, check=True)
    assert {"load", "Model", "decoding"} <= set(dir(rdm))
    with pytest.raises(AttributeError, match="module 'rdm' has no attribute 'lod'"):
        rdm.lod  # noqa: B018


def test_generate_equals_the_script(model: rdm.Model, run: Path, tmp_path: Path) -> None:
    """With random numbers and several batches, for each of them in any order of lengths."""
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    texts = [*SOURCES[:3], "", *SOURCES[3:]]
    source.write_text("\n".join(texts))
    options = [
        "decoding=rdm_gumbel",
        "schedule=linear",
        "ranking=entropy",
        "decoding.steps=3",
        "decoding.temperature=0.7",
    ]
    files = [f"input={source}", f"output={output}", "batch_size=2", "nbest=3", "seed=5"]
    script("generate.py", f"ckpt={run}", *options, *files)
    names = {"schedule": "linear", "ranking": "entropy"}
    found = model.generate(texts, "rdm_gumbel", **names, steps=3, temperature=0.7, batch_size=2, nbest=3, seed=5)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [each.text for each in found] == [line["hypothesis"] for line in lines]
    scores = [[float(f"{each.score:.6g}") for each in output.candidates] for output in found]
    assert scores == [line["scores"] for line in lines]
    assert found[3] == rdm.Generated("", 0.0, [], source="")
    assert [each.source for each in found] == texts


def test_trace_changes_nothing_and_equals_the_script(model: rdm.Model, run: Path) -> None:
    options = {"steps": 3, "temperature": 0.7, "batch_size": 2}
    plain, traced = model.generate(SOURCES, **options), model.generate(SOURCES, trace=True, **options)
    assert [each.text for each in plain] == [each.text for each in traced]
    shown = script("generate.py", f"ckpt={run}", f"text='{SOURCES[0]}'", "trace=true", "decoding.steps=3").stdout
    (output,) = model.generate(SOURCES[:1], trace=True, steps=3)
    assert output.trace is not None
    assert "\n".join(output.trace.lines()) in shown
    assert "<iframe srcdoc=" in output._repr_html_()
    assert "&lt;!doctype html&gt;" in output._repr_html_()
    assert plain[0]._repr_html_() == f"<p>{plain[0].text}</p>"


def test_evaluate_equals_the_script(model: rdm.Model, run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    script("evaluate.py", f"ckpt={run}", "decoding=rdm_commit", "decoding.steps=3", f"results={results}")
    row = json.loads(results.read_text())
    questions = model.data().questions("test")
    references = list(zip(*questions.references, strict=True))
    found = model.evaluate(questions.sources, references, decoding="rdm_commit", steps=3)
    assert {name: each.row() for name, each in found.metrics.items()} == row["metrics"]
    single = model.evaluate(questions.sources, references, ["chrf", SacreBleu()], "rdm_commit", steps=3)
    assert single["sacrebleu"] == found["sacrebleu"]
    assert list(single.metrics) == ["chrf", "sacrebleu"]


def test_fill_equals_the_script(model: rdm.Model, run: Path) -> None:
    word = model.codec.pieces([10])[0]
    template = f"_ {word} _"
    (filled,) = model.fill(template, SOURCES[0], steps=2)
    assert filled.text.split()[1] == word
    assert len(filled.text.split()) == 3
    shown = script("generate.py", f"ckpt={run}", f"text='{SOURCES[0]}'", f"template='{template}'", "decoding.steps=2")
    assert shown.stdout == f"{filled.text}\n"
    several = model.fill([template, f"_ _ {word} _ _"], SOURCES[:2], steps=2)
    assert [len(each.text.split()) for each in several] == [3, 5]


def test_language_model_fills_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    script("train.py", *TEXT, f"hydra.run.dir={folder}")
    model = rdm.load(folder)
    word = model.codec.pieces([10])[0]
    (filled,) = model.fill(f"{word} _ _ {word}", steps=2)
    words = filled.text.split()
    assert (words[0], words[-1], len(words)) == (word, word, 4)
    shown = script("generate.py", f"ckpt={folder}", f"template='{word} _ _ {word}'", "decoding.steps=2")
    assert shown.stdout == f"{filled.text}\n"
    with pytest.raises(rdm.UserError, match="a language model has no sources"):
        model.fill("a _", "a")


class Surest(Router):
    """Denoises the most likely tokens; written outside the package."""

    def route(self, state: State) -> torch.Tensor:
        missing = (state.count - state.denoised.sum(1)).clamp(min=0)
        chosen = top_k(state.scores, missing, state.noisy)
        return actions(state, v1=torch.ones_like(chosen), v2=chosen)


def test_own_objects(model: rdm.Model) -> None:
    mine = Sampler("mine", 4, Surest(), Linear(), length_candidates=2)
    ours = Sampler("commit", 4, Commit(), Linear(), length_candidates=2)
    assert model.generate(SOURCES, mine, nbest=2) != model.generate(SOURCES[:1], mine, nbest=1)
    assert [str(each) for each in model.generate(SOURCES, mine)] == [
        str(each) for each in model.generate(SOURCES, ours)
    ]
    with pytest.raises(rdm.UserError, match="steps: has no effect with a decoding object"):
        model.generate(SOURCES, mine, steps=3)


def test_score(model: rdm.Model) -> None:
    scores = model.score([*SOURCES[:2], ""], [*SOURCES[:2], ""])
    assert [score and score.kind for score in scores] == ["bound", "bound", None]


def test_threads_share_a_model(model: rdm.Model) -> None:
    """Also while they compose configurations by name."""
    jobs = [(name, steps) for name in ("rdm", "rdm_commit", "vanilla") for steps in (2, 3, 4)]

    def work(job: tuple[str, int]) -> list[str]:
        return [str(each) for each in model.generate(SOURCES, job[0], steps=job[1], temperature=0.5)]

    expected = [work(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, jobs)) == expected


def test_progress_is_shown_on_request(model: rdm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    model.generate(SOURCES, steps=2)
    assert capsys.readouterr() == ("", "")
    model.generate(SOURCES, steps=2, progress=True)
    assert "rdm, 2 iterations: 7 of 7 texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decoding": "rmd"}, "decoding=rmd: there is no such decoding; did you mean rdm?"),
        ({"schedule": "cosin"}, "schedule=cosin: there is no such schedule; did you mean cosine?"),
        ({"ranking": "entropi"}, "ranking=entropi: there is no such ranking; did you mean entropy?"),
        ({"steps": 1000}, "decoding.steps"),
        ({"steps": "many"}, "decoding.steps: 'many' is not a whole number"),
        ({"step": 3}, "decoding.step: rdm.decoding.sampler.Sampler takes no such value; it takes name, steps,"),
        ({"decoding": "beam"}, "decoding=beam"),
        ({"nbest": 6}, "nbest=6, but decoding=rdm decodes 5 candidates per source"),
        ({"nbest": 0}, "nbest must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"texts": "one text"}, "give a list of texts, even for a single one"),
        ({"texts": ["a " * 100]}, "source 1 has 100 tokens; 1 to 63 fit"),
    ],
)
def test_mistakes(model: rdm.Model, arguments: dict[str, object], message: str) -> None:
    texts = arguments.pop("texts", SOURCES)
    with pytest.raises(rdm.UserError) as raised:
        model.generate(texts, **arguments)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_metric(model: rdm.Model) -> None:
    with pytest.raises(rdm.UserError, match="there is no metric bleu; did you mean self_bleu"):
        model.evaluate(SOURCES, SOURCES, metrics=["bleu"])
    with pytest.raises(rdm.UserError, match="got 7 sources, but 6 references"):
        model.evaluate(SOURCES, SOURCES[1:])


def test_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(rdm.UserError, match="is not a run folder"):
        rdm.load(tmp_path)
