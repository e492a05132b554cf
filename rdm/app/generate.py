"""Decode texts: ``python generate.py ckpt=outputs/<run> text="..." [trace=true]``; see conf/generate.yaml."""

import sys
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from rdm.app.checks import check_generation
from rdm.app.trained_model import TrainedModel
from rdm.data.questions import EvaluationQuestions
from rdm.errors import UserError, require
from rdm.page.page import Page
from rdm.page.trajectory import Example, trace_decoding


def job(config: DictConfig) -> Page | None:
    """Decode the given text, or the first sentences of the test split, and print the outputs."""
    check_generation(config)
    model = TrainedModel.load(config.ckpt, config.average, config.device, config.int8, config.best)
    decoding = model.decoding(config.decoding)
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
        console.print(trajectory.output)
        examples.append(Example(source, references, [trajectory]))
    return Page(page, examples) if config.trace else None


def sources(config: DictConfig, model: TrainedModel) -> EvaluationQuestions:
    """The given text, or the first sentences of the test split with their references."""
    if config.text is None:
        return model.data().questions("test").first(config.sentences)
    text = standard_input() if config.text == "-" else str(config.text)
    return EvaluationQuestions(model.codec.encode_sources([text]), [text], references=[], cut=[False])


def standard_input() -> str:
    """All of standard input as UTF-8, whatever the locale."""
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise UserError(f"text=-: standard input is not UTF-8: {error.reason} at byte {error.start}") from error
