"""Generate text with a trained model, or score given text; see conf/generate.yaml."""

import sys
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from rdm.app.checks import STDIN, check_generation, generation_use, overridden_keys
from rdm.app.distil import distil
from rdm.app.line_files import generate_lines, score_lines, standard_input, typed_lines
from rdm.app.trained_model import TrainedModel, load_teacher
from rdm.data.questions import EvaluationQuestions
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.page.page import Page
from rdm.page.trajectory import Example, Trajectory, trace_decoding


def job(config: DictConfig) -> Page | None:
    """Decode or score what the configuration names."""
    check_generation(config)
    model = TrainedModel.load(config.ckpt, config.average, config.device, config.int8, config.best)
    use = generation_use(config)
    if config.score:
        score_lines(model, config)
        return None
    decoding = model.decoding(config.decoding, load_teacher(config))
    require(config.nbest <= decoding.candidates, too_few_candidates(config.nbest, decoding))
    if use == "distil":
        distil(model, decoding, config)
    elif use == "interactive":
        converse(model, decoding, config)
    elif use in ("input", STDIN) and not config.trace and config.template is None:
        generate_lines(model, decoding, config)
    else:
        return show(model, decoding, config)
    return None


def too_few_candidates(nbest: int, decoding: Decoding) -> str:
    return f"nbest={nbest}, but decoding={decoding.name} decodes {decoding.candidates} candidates per source"


def show(model: TrainedModel, decoding: Decoding, config: DictConfig) -> Page | None:
    """Decode the given text, or the first sentences of the test split, one at a time, and print the outputs."""
    page = Path(config.page or model.run.folder / "decoding.html")
    require(not page.is_dir(), f"page: {page} is a folder; name a file in it")
    device = next(model.system.parameters()).device
    template = None if config.template is None else model.codec.template(str(config.template)).to(device)
    label = f"{model.run.config.name}, step {model.cost['steps']}"
    console, examples = Console(soft_wrap=True, highlight=False, markup=False), []
    questions = sources(config, model)
    for row, source, *references in zip(questions.rows, questions.sources, *questions.references, strict=True):
        (trajectory,) = trace_decoding(label, model.system, decoding, model.codec, [row], config.seed, template)
        if references:
            console.print(f"source:    {source}\nreference: {references[0]}")
        if config.trace:
            console.print(f"{trajectory.strategy}; {trajectory.legend}", *trajectory.lines(), sep="\n")
        if config.nbest == 1:
            console.print(trajectory.output)
        else:
            print(*best_candidates(trajectory, config.nbest), sep="\n", flush=True)  # the console would expand tabs
        examples.append(Example(source, references, [trajectory]))
    return Page(page, examples) if config.trace else None


def best_candidates(trajectory: Trajectory, nbest: int) -> list[str]:
    """The ``nbest`` best candidates after their scores: the returned one, then the others by score."""
    ranked = sorted(trajectory.candidates, key=lambda candidate: (not candidate.chosen, -candidate.score))
    return [f"{candidate.score:.6g}\t{candidate.text}" for candidate in ranked[:nbest]]


def sources(config: DictConfig, model: TrainedModel) -> EvaluationQuestions:
    """The given text or lines, or the first sentences of the test split with their references."""
    if config.text is None:
        data = model.data(model.data_config(config.data, overridden_keys("data")))
        return data.questions("test").first(config.sentences)
    texts = [line for line in standard_input() if line] if config.text == "-" else [str(config.text)]
    require(len(texts) > 0, "text=-: standard input is empty")
    return EvaluationQuestions(model.codec.encode_sources(texts), texts, references=[], cut=[False] * len(texts))


def converse(model: TrainedModel, decoding: Decoding, config: DictConfig) -> None:
    """Read lines from standard input and answer each at once; a line that cannot be decoded is explained."""
    for line in typed_lines():
        try:
            (output,) = model.generate([line], decoding, seed=config.seed)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            continue
        best = output.candidates[: config.nbest]
        lines = [f"{each.score:.6g}\t{each.text}" for each in best] if config.nbest > 1 else [output.text]
        print(*lines, sep="\n", flush=True)
