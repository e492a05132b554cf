"""generate.py through the script: lines, files, resuming, n-best, scores, distillation, rescoring."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from rdm.app import distil, generate
from rdm.app.composition import compose_config
from rdm.app.line_files import generate_lines
from rdm.app.model import Model
from rdm.app.open_model import load
from rdm.data.toy_language import ToyLanguage
from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.decoding.easy_first import EasyFirst
from rdm.errors import UserError
from rdm.evaluation import generation
from tests.builders import tiny_disco
from tests.scripts import script
from tests.test_end_to_end import SMALL

Work = Callable[[Model, Decoding, DictConfig], None]
FAST = [*SMALL, "trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling=null"]
PAIRS = [(source, targets[0]) for source, targets in ToyLanguage().pairs(7, 3)]
SOURCES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def rdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "rdm"
    script("train.py", *FAST, f"hydra.run.dir={folder}")
    return folder


@pytest.fixture(scope="module")
def ar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ar"
    script("train.py", *FAST, "system=ar", f"hydra.run.dir={folder}")
    return folder


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def with_blanks() -> list[str]:
    return [*SOURCES[:2], "", *SOURCES[2:], "", ""]


def test_standard_input_is_decoded_line_by_line(rdm: Path) -> None:
    """One output per line, in order, and empty lines stay empty; progress goes to standard error."""
    command = ("generate.py", f"ckpt={rdm}", "decoding.steps=2")
    done = script(*command, "text=-", input="\n".join(with_blanks()) + "\n")
    outputs = done.stdout.split("\n")[:-1]
    assert [bool(text) for text in outputs] == [bool(text) for text in with_blanks()]
    assert "7 of 7 texts" in done.stderr
    alone = script(*command, "text=-", input=SOURCES[3]).stdout
    assert alone == script(*command, f"text='{SOURCES[3]}'").stdout
    assert script(*command, "text=-", "batch_size=1", input=SOURCES[3]).stdout == alone


def test_files_of_text_and_json(rdm: Path, ar: Path, tmp_path: Path) -> None:
    """A text file has the outputs of standard input; JSON lines add scores and the n best candidates."""
    source = tmp_path / "in.txt"
    source.write_text("\n".join(with_blanks()) + "\n")
    shown = script("generate.py", f"ckpt={rdm}", "text=-", input=source.read_text()).stdout
    done = script("generate.py", f"ckpt={rdm}", f"input={source}", f"output={tmp_path / 'new' / 'out.txt'}")
    assert done.stdout == f"wrote {tmp_path / 'new' / 'out.txt'}\n"
    assert (tmp_path / "new" / "out.txt").read_text() == shown
    for run, count in ((rdm, 5), (ar, 3)):
        output = tmp_path / f"{run.name}.jsonl"
        script("generate.py", f"ckpt={run}", f"input={source}", f"output={output}", f"nbest={count}")
        rows = lines_of(output)
        assert [row["source"] for row in rows] == with_blanks()
        for row in rows:
            if not row["source"]:
                assert row == {"source": "", "hypothesis": "", "score": None, "candidates": [], "scores": []}
                continue
            assert len(row["candidates"]) == len(row["scores"]) == count
            assert (row["candidates"][0], row["scores"][0]) == (row["hypothesis"], row["score"])
            assert row["scores"] == sorted(row["scores"], reverse=True)
    assert sorted(file.name for file in tmp_path.rglob("*.*")) == ["ar.jsonl", "in.txt", "out.txt", "rdm.jsonl"]


def test_n_best_on_standard_output(ar: Path) -> None:
    """Numbered by source with tab-separated scores; one text has no number."""
    done = script("generate.py", f"ckpt={ar}", "text=-", "nbest=2", input="\n".join(SOURCES[:2]))
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [number for number, _, _ in rows] == ["1", "1", "2", "2"]
    first = script("generate.py", f"ckpt={ar}", f"text='{SOURCES[0]}'", "nbest=2").stdout.splitlines()
    assert [line.split("\t")[1] for line in first] == [text for _, _, text in rows[:2]]
    assert float(rows[0][1]) >= float(rows[1][1])


class Killed(BaseException):
    """Stands for the end of the process."""


def interrupt(monkeypatch: pytest.MonkeyPatch, work: Work, run: Path, batches: int, *overrides: str) -> None:
    """Run the work of generate.py in this process until ``batches`` are stored."""
    decode, count = generation.decode_batch, iter(range(batches))

    def stopping(*arguments: Any) -> Any:
        if next(count, None) is None:
            raise Killed
        return decode(*arguments)

    config = compose_config("generate", [f"ckpt={run}", *overrides])
    model = load(str(run))
    decoding = model.decoding(config.decoding)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "decode_batch", stopping)
        patch.setattr(distil, "overridden_keys", lambda section: [])  # there is no command line
        with pytest.raises(Killed):
            work(model, decoding, config)


def test_killed_command_continues(rdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command computes the missing batches only; half a line is discarded; other settings are refused."""
    source, output, whole = tmp_path / "in.txt", tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    source.write_text("\n".join(with_blanks()))
    options = [f"input={source}", "batch_size=2", "decoding.steps=3", "decoding.temperature=1.0"]
    script("generate.py", f"ckpt={rdm}", *options, f"output={whole}")
    interrupt(monkeypatch, generate_lines, rdm, 2, *options, f"output={output}")
    partial = tmp_path / "out.jsonl.partial"
    assert not output.exists()
    with partial.open("a") as stream:
        stream.write('{"batch": 2, "rows": [{"te')
    refused = script("generate.py", f"ckpt={rdm}", *options, f"output={output}", "seed=2", code=2).stderr
    assert (
        refused == f"error: {partial} holds unfinished results of other settings; delete it, or choose another file\n"
    )
    done = script("generate.py", f"ckpt={rdm}", *options, f"output={output}")
    assert f"resuming {output}: 4 of 7 texts are done" in done.stderr
    assert output.read_text() == whole.read_text()
    assert not partial.exists()
    exists = script("generate.py", f"ckpt={rdm}", *options, f"output={output}", code=2).stderr
    assert exists == f"error: output: {output} exists; delete it, or choose another file\n"
    assert not partial.exists()


def test_interactive(rdm: Path) -> None:
    """Every line is answered; an empty one with an empty line, one that is too long with an error."""
    typed = f"{SOURCES[0]}\n\n{'a ' * 100}\n{SOURCES[1]}\n"
    done = script("generate.py", f"ckpt={rdm}", "interactive=true", "decoding.steps=2", input=typed)
    first, empty, second = done.stdout.split("\n")[:-1]
    assert (first, empty, second) == (first, "", second)
    assert first
    assert second
    assert done.stderr == "error: source 1 has 100 tokens; 1 to 63 fit\n"
    assert first == script("generate.py", f"ckpt={rdm}", f"text='{SOURCES[0]}'", "decoding.steps=2").stdout.strip("\n")


@pytest.mark.parametrize(("system", "kind"), [("rdm", "bound"), ("ar", "exact")])
def test_score(system: str, kind: str, rdm: Path, ar: Path, tmp_path: Path) -> None:
    """From two columns and from two files alike; independent of the batches if the likelihood is exact."""
    run = {"rdm": rdm, "ar": ar}[system]
    table, source, target = tmp_path / "pairs.tsv", tmp_path / "in.txt", tmp_path / "out.txt"
    pairs = [*PAIRS[:2], ("", ""), *PAIRS[2:]]
    table.write_text("".join(f"{a}\t{b}\n" if a else "\n" for a, b in pairs))
    source.write_text("".join(f"{a}\n" for a, _ in pairs))
    target.write_text("".join(f"{b}\n" for _, b in pairs))
    command = ("generate.py", f"ckpt={run}", "score=true")
    shown = script(*command, f"input={table}").stdout
    rows = [line.split("\t") for line in shown.split("\n")[:-1]]
    assert rows[2] == [""]
    assert [row[2] for row in rows if row != [""]] == [kind] * 7
    assert [int(row[1]) for row in rows if row != [""]] == [len(b.split()) + 1 for _, b in PAIRS]
    assert script(*command, f"input={source}", f"targets={target}").stdout == shown
    output = tmp_path / "scores.jsonl"
    script(*command, f"input={table}", f"output={output}", *(["batch_size=2"] if kind == "exact" else []))
    values = [row["nats"] for row in lines_of(output)]
    assert values.pop(2) is None
    assert values == pytest.approx([float(row[0]) for row in rows if row != [""]], rel=1e-4)
    model = load(str(run))
    assert [score.kind for score in model.score(*zip(*PAIRS, strict=True)) if score] == [kind] * 7  # type: ignore[misc]


def test_distillation(ar: Path, tmp_path: Path) -> None:
    """Train has the beam's outputs, the other splits are unchanged, and train.py takes the folder."""
    folder = tmp_path / "distilled"
    options = [f"ckpt={ar}", f"distil={folder}", "decoding.beam_size=2"]
    wanted = f"python train.py data=text_pairs data.root={folder} data.source=source data.target=target"
    assert script("generate.py", *options).stdout == f"wrote {folder}, 200 training pairs: {wanted}\n"
    assert script("generate.py", *options).stdout == f"{folder} is complete: {wanted}\n"
    refused = script("generate.py", *options, "decoding.beam_size=3", code=2).stderr
    assert refused == f"error: distil: {folder} holds the output of other settings; choose another folder\n"
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        ["card.md", *(f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target"))]
    )
    model = load(str(ar))
    corpus = model.data().corpus
    sources, targets = ((folder / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
    assert sources == corpus.read("train")[0]
    decoding = model.decoding(compose_config("generate", ["decoding.beam_size=2"]).decoding)
    outputs = model.generate(sources[:3], decoding)
    assert targets[:3] == [output.text.strip() for output in outputs]
    for split in ("valid", "test"):
        texts = [(folder / f"{split}.{side}").read_text().splitlines() for side in ("source", "target")]
        assert texts == list(corpus.read(split))  # type: ignore[arg-type]
    card = (folder / "card.md").read_text()
    for fact in (str(ar), "step 2", "beam, width 2", corpus.fingerprint("train")):
        assert fact in card
    student = [each for each in FAST if not each.startswith("data.")]
    script(
        "train.py", *student, *wanted.split()[2:], "data.tokenizer.size=600", f"hydra.run.dir={tmp_path / 'student'}"
    )


def test_distillation_continues(ar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored batches of an unfinished folder are used; a folder with other content is refused."""
    whole, folder = tmp_path / "whole", tmp_path / "folder"
    options = ["decoding.beam_size=1", "batch_size=100"]
    script("generate.py", f"ckpt={ar}", *options, f"distil={whole}")
    interrupt(monkeypatch, distil.distil, ar, 1, *options, f"distil={folder}")
    assert [file.name for file in folder.iterdir()] == ["train.partial"]
    done = script("generate.py", f"ckpt={ar}", *options, f"distil={folder}")
    assert f"resuming {folder}: 100 of 200 texts are done" in done.stderr
    assert (folder / "train.target").read_text() == (whole / "train.target").read_text()
    (folder / "card.md").unlink()
    refused = script("generate.py", f"ckpt={ar}", *options, f"distil={folder}", code=2).stderr
    assert refused == f"error: distil: {folder} is not empty; choose another folder\n"


def test_rescoring(rdm: Path, ar: Path, tmp_path: Path) -> None:
    """The returned candidate is the one to which the ar run gives the highest mean log-probability."""
    results = tmp_path / "results.jsonl"
    script("evaluate.py", f"ckpt={rdm}", f"rescore={ar}", "decoding.steps=2", f"results={results}")
    (row,) = lines_of(results)
    selection = row["decoding"]["selection"]
    assert (selection["class"], selection["run"], selection["system"]) == ("TeacherScore", str(ar), "ar")
    assert selection["checkpoint_step"] == 2
    teacher = load(str(ar))
    for line in lines_of(Path(row["hypotheses"])):
        scores = teacher.score([line["source"]] * 5, line["candidates"])
        means = [-score.nats / score.tokens for score in scores if score is not None]
        chosen = line["candidates"].index(line["hypothesis"])
        assert means[chosen] == pytest.approx(max(means), abs=1e-4)
    generated = script("generate.py", f"ckpt={rdm}", f"rescore={ar}", "decoding.steps=2", "nbest=5").stdout
    outputs = [text.split("\t")[1] for text in generated.splitlines()[2:]]
    assert set(outputs) == set(lines_of(Path(row["hypotheses"]))[0]["candidates"])
    for overrides, message in (
        ([f"ckpt={rdm}", f"rescore={rdm}"], "is a run of system rdm_absorbing; name a run of system=ar"),
        ([f"ckpt={ar}", f"rescore={ar}"], "has no candidates to choose from: decoding=beam"),
        ([f"ckpt={rdm}", "rescore=nowhere"], "rescore: nowhere does not exist"),
    ):
        assert message in script("evaluate.py", *overrides, code=2).stderr


def test_a_teacher_replaces_any_selection(ar: Path) -> None:
    """Not only that of samplers; a decoding with several texts but without a selection refuses a teacher."""
    teacher = load(str(ar))
    student = replace(teacher, system=tiny_disco(teacher.system.vocab))
    chosen = student.choose_decoding(EasyFirst("easy_first", length_candidates=2), rescore=teacher)
    assert chosen.describe()["selection"]["class"] == "TeacherScore"
    with pytest.raises(UserError, match="decoding=easy_first decodes one text per source"):
        student.choose_decoding(EasyFirst("easy_first", length_candidates=1), rescore=teacher)
    with pytest.raises(UserError, match="decoding=beam has no selection; it returns its best text"):
        teacher.choose_decoding(BeamSearch("beam", beam_size=3), rescore=teacher)


def test_length_aware_selection(rdm: Path, ar: Path, tmp_path: Path) -> None:
    """A large weight returns the most likely length; systems without length head refuse it."""
    results = tmp_path / "results.jsonl"
    weight = "decoding.selection.weight"
    for overrides in (["selection=length_aware", f"{weight}=0"], ["selection=length_aware", f"{weight}=1e6"], []):
        script("evaluate.py", f"ckpt={rdm}", "decoding.steps=2", f"results={results}", *overrides)
    zero, large, plain = lines_of(results)
    assert zero["decoding"]["selection"] == {"class": "LengthAwareScore", "weight": 0}
    texts: Callable[[Any], list[str]] = lambda row: [each["hypothesis"] for each in lines_of(Path(row["hypotheses"]))]  # noqa: E731
    assert texts(zero) == texts(plain)
    likely = [each["candidates"][0] for each in lines_of(Path(large["hypotheses"]))]  # the most likely length is first
    assert texts(large) == likely
    refused = script("evaluate.py", f"ckpt={ar}", "selection=length_aware", code=2).stderr
    assert "decoding.selection: rdm.decoding.beam.BeamSearch takes no such value" in refused


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["text=a", "input=b"], "text and input cannot be combined: choose one"),
        (["text=a", "output=b"], "output has no effect with text=...; it is for input, text=- (standard input)"),
        (["text=a", "sentences=2"], "sentences has no effect with text=...; it is for test sentences"),
        (["input=a", "trace=true"], "trace has no effect with input"),
        (["input=a", "data.root=b"], "data has no effect with input; it is for distil, test sentences"),
        (["interactive=true", "score=true"], "score has no effect with interactive"),
        (["distil=a", "nbest=2"], "nbest has no effect with distil"),
        (["input=a", "score=true", "nbest=2"], "nbest has no effect with score=true, which decodes nothing"),
        (["input=a", "score=true", "decoding.steps=2"], "decoding has no effect with score=true"),
        (["input=a", "targets=b"], "targets has no effect without score=true"),
        (["input=a", "output=b.txt", "nbest=2"], "nbest: a text file has one output per line; use output=<file>.jsonl"),
        (["input=nowhere"], "input: nowhere cannot be read: No such file or directory"),
        (["input=README.md", "score=true"], "score: line 1 has 1 columns; a line is source, tab, target"),
        (["input=README.md", "targets=Makefile", "score=true"], "the lines must be aligned"),
        (["text=a", "nbest=6"], "nbest=6, but decoding=rdm decodes 5 candidates per source"),
        (["nbest=0"], "nbest must be at least 1, got 0"),
        (["text=a", "template=_", "nbest=2"], "nbest has no effect with a template"),
    ],
)
def test_options_without_effect_are_refused(overrides: list[str], message: str, rdm: Path) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        generate.job(compose_config("generate", [f"ckpt={rdm}", *overrides]))


def test_refusal_by_the_script(rdm: Path) -> None:
    refused = script("generate.py", f"ckpt={rdm}", "text=a", "output=b", code=2).stderr
    assert refused == "error: output has no effect with text=...; it is for input, text=- (standard input)\n"


def test_line_that_is_too_long_is_named(rdm: Path) -> None:
    """Empty lines count."""
    done = script("generate.py", f"ckpt={rdm}", "text=-", input=f"\n{SOURCES[0]}\n{'a ' * 70}\n", code=2)
    assert done.stderr == "error: source 3 has 70 tokens; 1 to 63 fit\n"
