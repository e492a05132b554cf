"""The scripts, run as a user runs them."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rdm.data.toy_language import ToyLanguage
from rdm.runs import Run
from tests.scripts import ROOT, script

SMALL = [
    "data.corpus.train_size=200",
    "data.corpus.valid_size=8",
    "data.corpus.test_size=8",
    "model.dim=32",
    "model.hidden=32",
    "trainer.max_steps=6",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=2",
    "callbacks.progress=null",
]


def train(folder: Path, *overrides: str) -> Path:
    script("train.py", *SMALL, f"hydra.run.dir={folder}", *overrides)
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of the default system."""
    return train(tmp_path_factory.mktemp("run") / "short")


def test_a_script_as_a_process_of_its_own(tmp_path: Path) -> None:
    """Once the way a shell does it; the other tests run the same files in a process that has its imports behind it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", *SMALL, f"hydra.run.dir={tmp_path}", "trainer.max_steps=3"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == f"done: python evaluate.py ckpt={tmp_path}"
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()


def test_run_folder_holds_everything(run: Path) -> None:
    for name in ("config.yaml", "tokenizer.json", "versions.json", "metrics.csv", "samples/step_0000006.md"):
        assert (run / name).is_file(), name
    assert Run(run).finished
    checkpoints = sorted(file.name for file in (run / "checkpoints").iterdir())
    assert checkpoints == ["last.ckpt", "step_0000003.ckpt", "step_0000006.ckpt"]
    assert {"val/bleu", "val/loss", "train/loss"} <= set((run / "metrics.csv").read_text().splitlines()[0].split(","))


def test_evaluate_sweep_makes_a_table(run: Path, tmp_path: Path) -> None:
    """A multirun appends a row an evaluation and prints the table; the report is built from the rows."""
    done = script(
        "evaluate.py", "-m", f"ckpt={run}", "decoding=vanilla,rdm", "decoding.steps=2,4", f"hydra.sweep.dir={tmp_path}"
    )
    results = rows(run)
    assert [(row["strategy"], row["steps"]) for row in results] == [
        ("vanilla", 2),
        ("vanilla", 4),
        ("rdm", 2),
        ("rdm", 4),
    ]
    for row in results:
        assert row["sentences"] == 8
        assert row["candidates"] == 5
        assert row["checkpoint_step"] == 6
        assert row["data"] == "toy_translation"
        assert "tok:13a" in row["metrics"]["sacrebleu"]["signature"]
        assert list(row["metrics"]) == ["sacrebleu", "chrf"]
        assert row["sentences_per_second"] > 0
        assert len(Path(row["hypotheses"]).read_text().splitlines()) == 8
    assert len({row["hypotheses"] for row in results}) == 4
    assert "4 iterations" in done.stdout
    report = script("-m", "rdm.report", str(run))
    assert (run / "iterations.png").is_file()
    assert "report.md" in report.stdout
    compared = script("-m", "rdm.compare", results[0]["hypotheses"], results[3]["hypotheses"], "--samples=20")
    assert "bs:20" in compared.stdout.replace("\n", "")


def test_evaluate_a_checkpoint_file_and_an_average(run: Path, tmp_path: Path) -> None:
    results = f"results={tmp_path / 'results.jsonl'}"
    file = run / "checkpoints" / "step_0000003.ckpt"
    script("evaluate.py", f"ckpt={file}", "int8=true", "decoding.prune_after=3", results)
    diffuseq = ["decoding=mbr", "metrics=diffuseq", "likelihood=2"]
    done = script("evaluate.py", f"ckpt={run}", "average=2", "decoding.steps=3", "limit=4", *diffuseq, results)
    first, second = rows(tmp_path)
    assert (first["checkpoint_step"], first["strategy"], first["steps"]) == (3, "rdm", 10)
    assert (first["int8"], first["decoding"]["prune_after"], first["decoding"]["keep_candidates"]) == (True, 3, 2)
    assert (second["int8"], second["decoding"]["prune_after"]) == (False, None)
    assert (second["average"], second["steps"], second["sentences"]) == (2, 3, 4)
    assert (second["strategy"], second["candidates"]) == ("mbr", 10)
    metrics = second["metrics"]
    assert metrics["bertscore"]["value"] is None
    assert "bertscore skipped: needs microsoft/deberta-xlarge-mnli" in done.stdout
    assert metrics["self_bleu"]["signature"].endswith("candidates:10")
    assert metrics["nats_per_token"]["signature"] == "bound|draws:2|end:counted"
    assert metrics["nats_per_token"]["error"] > 0
    saved = [json.loads(line) for line in Path(second["hypotheses"]).read_text().splitlines()]
    assert [len(line["candidates"]) for line in saved] == [10] * 4
    assert all(line["hypothesis"] in line["candidates"] for line in saved)


def test_generate_shows_a_trace(run: Path) -> None:
    sentence = json.loads((run / "tokenizer.json").read_text())["model"]["vocab"]
    words = [word for word in sentence if not word.startswith("<")][:5]
    page = run / "decoding.html"
    done = script("generate.py", f"ckpt={run}", f"text='{' '.join(words)}'", "trace=true", "decoding.steps=3")
    assert done.stdout.splitlines()[-1] == f"wrote {page}"
    assert page.read_text().count('<li class="step"') == 4
    numbered = [line for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    assert len(numbered) == 4
    assert "[<mask>]" in numbered[0]
    assert "[" not in numbered[-1]


def test_generate_puts_strategies_side_by_side(run: Path, tmp_path: Path) -> None:
    """A multirun makes one page: each sentence once, with a column a strategy."""
    page, sweep = tmp_path / "new" / "page.html", [f"hydra.sweep.dir={tmp_path / 'sweep'}", "decoding=rdm,vanilla"]
    done = script("generate.py", "-m", f"ckpt={run}", "trace=true", "sentences=2", f"page={page}", *sweep)
    html = page.read_text()
    assert done.stdout.count("wrote ") == 1
    assert html.count('<section class="example"') == 2
    assert re.findall(r"<h2>(\w+), 10 iterations", html) == ["rdm", "vanilla", "rdm", "vanilla"]
    assert html.count("<em>chosen</em>") == 4
    assert "<dt>reference</dt>" in html


def test_generate_without_trace_writes_no_page(run: Path, tmp_path: Path) -> None:
    done = script("generate.py", f"ckpt={run}", "sentences=2", f"page={tmp_path / 'page.html'}", "decoding.steps=2")
    assert done.stdout.count("reference: ") == 2
    assert not any(tmp_path.iterdir())


def test_generate_fills_a_template(run: Path) -> None:
    vocab = json.loads((run / "tokenizer.json").read_text())["model"]["vocab"]
    first, second = [word for word in vocab if not word.startswith("<")][:2]
    done = script("generate.py", f"ckpt={run}", f"template={first} _ {second} _", "decoding.steps=2")
    output = done.stdout.splitlines()[-1].split()
    assert output[0] == first
    assert second in output[1:3]  # an untrained model may fill a blank with a symbol that is no text
    assert len(output) <= 4


def test_generate_reads_standard_input(run: Path) -> None:
    """For text with commas, quotes and other characters that mean something to Hydra."""
    done = script("generate.py", f"ckpt={run}", "text=-", "decoding.steps=2", input="it's (a, b) = c\n")
    assert done.stdout.strip()


@pytest.mark.parametrize("diffusion", ["absorbing", "multinomial", "rdm_multinomial", "rdm_mixture"])
def test_other_systems(diffusion: str, tmp_path: Path) -> None:
    folder = train(tmp_path / diffusion, f"diffusion={diffusion}")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    expected = "rdm" if diffusion.startswith("rdm") else "vanilla"
    assert [(row["system"], row["strategy"]) for row in rows(folder)] == [(diffusion, expected)]


def test_diffuseq(tmp_path: Path) -> None:
    """The continuous baseline goes through the same scripts; its samples have a trace of words."""
    folder = train(tmp_path / "diffuseq", "experiment=toy/diffuseq", "decoding.steps=4", "model.layers=1")
    script("evaluate.py", f"ckpt={folder}", "decoding=diffuseq", "decoding.steps=3", "decoding.samples=2")
    (row,) = rows(folder)
    assert (row["system"], row["strategy"], row["steps"], row["candidates"]) == ("diffuseq", "diffuseq", 3, 2)
    page = (folder / "samples" / "step_0000006.md").read_text()
    assert len([line for line in page.splitlines() if line[:4].strip().isdigit()]) == 5


@pytest.mark.parametrize(("system", "decoding"), [("ar", "beam"), ("cmlm", "mask_predict")])
def test_baselines(system: str, decoding: str, tmp_path: Path) -> None:
    folder = train(tmp_path / system, f"system={system}")
    script("evaluate.py", f"ckpt={folder}")
    assert [(row["system"], row["strategy"]) for row in rows(folder)] == [(system, decoding)]
    if system == "ar":
        refused = script("evaluate.py", f"ckpt={folder}", "decoding=vanilla", code=2).stderr
        assert refused == "error: decoding=vanilla is not for a model of system ar\n"


@pytest.mark.parametrize(
    ("system", "strategy", "takes", "refuses"),
    [("lm", "rdm", "steps", "max_tokens"), ("ar_lm", "left_to_right", "max_tokens", "steps")],
)
def test_language_models(system: str, strategy: str, takes: str, refuses: str, tmp_path: Path) -> None:
    """Trained on packed text, they continue prompts; a number of iterations does not cut texts that have none."""
    folder = train(tmp_path / system, f"system={system}")
    script("evaluate.py", f"ckpt={folder}", f"decoding.{takes}=3", "limit=4")
    assert [(row["strategy"], row["sentences"]) for row in rows(folder)] == [(strategy, 4)]
    refused = script("evaluate.py", f"ckpt={folder}", f"decoding.{refuses}=3", code=2).stderr
    assert refused.startswith(f"error: decoding.{refuses}: ")
    assert f"takes no such value; it takes name, {takes}" in refused


def test_unigram_noise_travels_with_the_checkpoint(tmp_path: Path) -> None:
    folder = train(tmp_path / "unigram", "diffusion=rdm_multinomial", "diffusion/noise=unigram")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")


def test_two_processes(tmp_path: Path) -> None:
    """DDP on the CPU trains, samples, saves one run folder, and the run can be evaluated."""
    folder = train(tmp_path / "ddp", "trainer=ddp_cpu")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    assert (folder / "checkpoints" / "step_0000006.ckpt").is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["ddp"]


def test_a_model_spread_over_two_processes(tmp_path: Path) -> None:
    """FSDP on the CPU trains, samples with the average, and saves whole checkpoints, from which a run can go on."""
    overrides = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.devices=2"]
    spread = tmp_path / "spread"
    for folder, more in ((spread, []), (tmp_path / "longer", [f"ckpt={spread}", "trainer.max_steps=9"])):
        command = [sys.executable, "train.py", *SMALL, f"hydra.run.dir={folder}", *overrides, *more]
        done = subprocess.run(command, cwd=ROOT, timeout=300, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    assert rows(tmp_path / "longer")[0]["checkpoint_step"] == 9
    assert list((spread / "samples").glob("*.md"))
    saved = torch.load(spread / "checkpoints" / "step_0000006.ckpt", weights_only=True)
    average, trained = saved["state_dict"], saved["current_model_state"]
    assert average.keys() == trained.keys()
    assert not any(torch.equal(average[name], trained[name]) for name in average if name.endswith("out.weight"))


@pytest.mark.parametrize("logger", ["wandb", "tensorboard"])
def test_other_loggers(logger: str, tmp_path: Path) -> None:
    folder = train(tmp_path / logger, f"logger={logger}")
    places = {
        "wandb": ["wandb/offline-run-*/files/media/table/samples*", "wandb/offline-run-*/files/media/html/decoding*"],
        "tensorboard": ["tensorboard/events*"],
    }
    assert all(list(folder.glob(place)) for place in places[logger])
    if logger == "tensorboard":
        (events,) = folder.glob("tensorboard/events*")
        assert b"samples/text_summary" in events.read_bytes()
        assert b"val/bleu" in events.read_bytes()


def test_sweep_over_reweighting(tmp_path: Path) -> None:
    script("train.py", "-m", *SMALL, "reweighting=original,constant", f"hydra.sweep.dir={tmp_path}")
    assert len(list(tmp_path.glob("*/checkpoints/last.ckpt"))) == 2


def test_own_files(tmp_path: Path) -> None:
    """Aligned text from a folder, packed or not, is trained on and evaluated like the generated text."""
    for split, count, seed in (("train", 200, 1), ("valid", 8, 2), ("test", 8, 3)):
        pairs = ToyLanguage().pairs(count, seed)
        (tmp_path / f"{split}.de").write_text("".join(f"{source}\n" for source, _ in pairs))
        packed = gzip.compress("".join(f"{target}\n" for _, (target,) in pairs).encode())
        (tmp_path / f"{split}.en.gz").write_bytes(packed)
    corpus = ["data=text_pairs", f"data.root={tmp_path}", "data.source=de", "data.target=en"]
    small = [override for override in SMALL if not override.startswith("data.")]
    run = tmp_path / "run"
    script("train.py", *small, *corpus, "data.tokenizer.size=600", f"hydra.run.dir={run}")
    script("evaluate.py", f"ckpt={run}", "decoding.steps=2")
    (row,) = rows(run)
    assert row["sentences"] == 8
    assert "nrefs:1" in row["metrics"]["sacrebleu"]["signature"]
