"""End-to-end tests of the scripts."""

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

from rdm.app.run_folder import RunFolder
from rdm.data.toy_language import ToyLanguage
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


def test_train_in_a_new_process(tmp_path: Path) -> None:
    """As from a shell; the other tests run the same files in a process that has imported the packages."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "train.py", *SMALL, f"hydra.run.dir={tmp_path}", "trainer.max_steps=3"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == f"done: python evaluate.py ckpt={tmp_path}"
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "pytorch_lightning" in imported
    assert not imported & {"scipy", "transformers", "datasets", "wandb", "pandas", "pyarrow", "nltk"}


def test_contents_of_the_run_folder(run: Path) -> None:
    for name in ("config.yaml", "tokenizer.json", "versions.json", "metrics.csv", "samples/step_0000006.md"):
        assert (run / name).is_file(), name
    assert RunFolder(run).finished
    checkpoints = sorted(file.name for file in (run / "checkpoints").iterdir())
    assert checkpoints == ["last.ckpt", "step_0000003.ckpt", "step_0000006.ckpt"]
    assert {"val/bleu", "val/loss", "train/loss"} <= set((run / "metrics.csv").read_text().splitlines()[0].split(","))


def test_evaluation_sweep_and_report(run: Path, tmp_path: Path) -> None:
    """A multirun appends one row per job and prints the table; the report is built from the rows."""
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


def test_evaluate_a_checkpoint_file_and_averaged_weights(run: Path, tmp_path: Path) -> None:
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


def test_unknown_key_of_the_trained_decoding_is_refused(run: Path) -> None:
    """In one line that names the keys it has."""
    for name in ("evaluate.py", "generate.py"):
        refused = script(name, f"ckpt={run}", "decoding.step=3", code=2).stderr
        assert refused.startswith(
            "error: decoding.step: rdm.decoding.sampler.Sampler takes no such value; it takes name, "
        )
        assert refused.count("\n") == 1


def test_generate_prints_the_trace(run: Path) -> None:
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


def test_generate_compares_decodings_on_one_page(run: Path, tmp_path: Path) -> None:
    """A multirun writes one page: one section per sentence, one column per decoding."""
    page, sweep = tmp_path / "new" / "page.html", [f"hydra.sweep.dir={tmp_path / 'sweep'}", "decoding=rdm,vanilla"]
    done = script("generate.py", "-m", f"ckpt={run}", "trace=true", "sentences=2", f"page={page}", *sweep)
    html = page.read_text()
    assert done.stdout.count("wrote ") == 1
    assert html.count('<section class="example"') == 2
    assert re.findall(r"<h2>(\w+), 10 iterations", html) == ["rdm", "vanilla", "rdm", "vanilla"]
    assert html.count("<em>chosen</em>") == 4
    assert "<dt>reference</dt>" in html


def test_generate_without_trace_writes_no_page(run: Path, tmp_path: Path) -> None:
    refused = script("generate.py", f"ckpt={run}", f"page={tmp_path / 'page.html'}", code=2).stderr
    assert refused == "error: page has no effect without trace=true\n"
    done = script("generate.py", f"ckpt={run}", "sentences=2", "decoding.steps=2")
    assert done.stdout.count("reference: ") == 2
    assert not any(tmp_path.iterdir())


def test_generate_fills_a_template(run: Path) -> None:
    vocab = json.loads((run / "tokenizer.json").read_text())["model"]["vocab"]
    first, second = [word for word in vocab if not word.startswith("<")][:2]
    done = script("generate.py", f"ckpt={run}", f"template={first} _ {second} _", "decoding.steps=2")
    output = done.stdout.splitlines()[-1].split()
    assert output[0] == first
    assert second in output[1:3]  # an untrained model may generate special symbols, which are not printed
    assert len(output) <= 4


def test_generate_reads_standard_input(run: Path) -> None:
    """``text=-`` accepts characters that are special in Hydra overrides."""
    done = script("generate.py", f"ckpt={run}", "text=-", "decoding.steps=2", input="it's (a, b) = c\n")
    assert done.stdout.strip()


@pytest.mark.parametrize("diffusion", ["absorbing", "multinomial", "rdm_multinomial", "rdm_mixture"])
def test_train_and_evaluate_each_diffusion(diffusion: str, tmp_path: Path) -> None:
    folder = train(tmp_path / diffusion, f"diffusion={diffusion}")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    expected = "rdm" if diffusion.startswith("rdm") else "vanilla"
    assert [(row["system"], row["strategy"]) for row in rows(folder)] == [(diffusion, expected)]


def test_diffuseq(tmp_path: Path) -> None:
    """The continuous baseline trains and decodes with the same scripts; its samples have a trace."""
    folder = train(tmp_path / "diffuseq", "experiment=toy/diffuseq", "decoding.steps=4", "model.layers=1")
    script("evaluate.py", f"ckpt={folder}", "decoding=diffuseq", "decoding.steps=3", "decoding.samples=2")
    script("evaluate.py", f"ckpt={folder}", "decoding.eta=0.5")
    row, trained = rows(folder)
    assert (row["system"], row["strategy"], row["steps"], row["candidates"]) == ("diffuseq", "diffuseq", 3, 2)
    assert (trained["strategy"], trained["steps"]) == ("diffuseq_ddim", 4)
    assert re.search(r"eta\W+0\.5", json.dumps(trained))
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
    [("lm", "rdm", "steps", "beam_size"), ("ar_lm", "left_to_right", "max_tokens", "steps")],
)
def test_language_models(system: str, strategy: str, takes: str, refuses: str, tmp_path: Path) -> None:
    """They continue prompts; an option of the other kind of decoding is refused."""
    folder = train(tmp_path / system, f"system={system}")
    script("evaluate.py", f"ckpt={folder}", f"decoding.{takes}=3", "limit=4")
    assert [(row["strategy"], row["sentences"]) for row in rows(folder)] == [(strategy, 4)]
    refused = script("evaluate.py", f"ckpt={folder}", f"decoding.{refuses}=3", code=2).stderr
    assert refused.startswith(f"error: decoding.{refuses}: ")
    assert f"takes no such value; it takes name, {takes}" in refused


def test_unigram_noise_is_saved_in_the_checkpoint(tmp_path: Path) -> None:
    folder = train(tmp_path / "unigram", "diffusion=rdm_multinomial", "diffusion/noise=unigram")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")


def test_ddp_on_two_processes(tmp_path: Path) -> None:
    """DDP on the CPU trains, samples and saves one run folder, which can be evaluated."""
    folder = train(tmp_path / "ddp", "trainer=ddp_cpu")
    script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    assert (folder / "checkpoints" / "step_0000006.ckpt").is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["ddp"]


@pytest.mark.slow
def test_fsdp_on_two_processes(tmp_path: Path) -> None:
    """FSDP on the CPU trains, samples with EMA weights and saves full checkpoints, from which a run can continue."""
    overrides = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.devices=2"]
    sharded = tmp_path / "sharded"
    for folder, more in ((sharded, []), (tmp_path / "longer", [f"ckpt={sharded}", "trainer.max_steps=9"])):
        command = [sys.executable, "train.py", *SMALL, f"hydra.run.dir={folder}", *overrides, *more]
        done = subprocess.run(command, cwd=ROOT, timeout=300, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        script("evaluate.py", f"ckpt={folder}", "decoding.steps=2")
    assert rows(tmp_path / "longer")[0]["checkpoint_step"] == 9
    assert list((sharded / "samples").glob("*.md"))
    saved = torch.load(sharded / "checkpoints" / "step_0000006.ckpt", weights_only=True)
    average, trained = saved["state_dict"], saved["current_model_state"]
    assert average.keys() == trained.keys()
    assert not any(torch.equal(average[name], trained[name]) for name in average if name.endswith("out.weight"))


@pytest.mark.parametrize("logger", ["wandb", "tensorboard"])
def test_loggers_receive_samples(logger: str, tmp_path: Path) -> None:
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


def test_user_files(tmp_path: Path) -> None:
    """Aligned text files, plain or gzip-compressed, can be trained on and evaluated."""
    for split, count, seed in (("train", 200, 1), ("valid", 8, 2), ("test", 8, 3)):
        pairs = ToyLanguage().pairs(count, seed)
        (tmp_path / f"{split}.de").write_text("".join(f"{source}\n" for source, _ in pairs))
        compressed = gzip.compress("".join(f"{target}\n" for _, (target,) in pairs).encode())
        (tmp_path / f"{split}.en.gz").write_bytes(compressed)
    corpus = ["data=text_pairs", f"data.root={tmp_path}", "data.source=de", "data.target=en"]
    small = [override for override in SMALL if not override.startswith("data.")]
    run = tmp_path / "run"
    script("train.py", *small, *corpus, "data.tokenizer.size=600", f"hydra.run.dir={run}")
    script("evaluate.py", f"ckpt={run}", "decoding.steps=2")
    (row,) = rows(run)
    assert row["sentences"] == 8
    assert "nrefs:1" in row["metrics"]["sacrebleu"]["signature"]
