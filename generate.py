"""Decode a sentence or a few: ``python generate.py ckpt=outputs/<run> text="..." [trace=true]``; conf/generate.yaml."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig
from rich.console import Console

from rdm import cli
from rdm.config import GenerateOptions, check_options
from rdm.data.module import TextDataModule
from rdm.data.questions import EvaluationQuestions
from rdm.errors import UserError, require
from rdm.page.page import Page
from rdm.page.trajectory import Example, follow
from rdm.runs import load


def standard_input() -> str:
    """All of it, whatever the locale says it is."""
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise UserError(f"text=-: standard input is not UTF-8: {error.reason} at byte {error.start}") from error


@hydra.main(version_base="1.3", config_path="conf", config_name="generate")
@cli.job
def main(config: DictConfig) -> Page | None:
    check_options(config, GenerateOptions)
    require(config.sentences >= 1, f"sentences must be at least 1, got {config.sentences}")
    loaded = load(config)
    page = Path(config.page or loaded.run.folder / "decoding.html")
    require(not page.is_dir(), f"page: {page} is a folder; name a file in it")
    data, said = loaded.data, loaded.describe()
    device = next(loaded.system.parameters()).device
    template = None if config.template is None else data.template(str(config.template)).to(device)
    console, examples = Console(soft_wrap=True, highlight=False, markup=False), []
    asked = questions(config, data)
    for row, source, *references in zip(asked.rows, asked.sources, *asked.references, strict=True):
        model = f"{said['system']}, step {said['checkpoint_step']}"
        (way,) = follow(model, loaded.system, loaded.decoding, data, [row], config.seed, template)
        if references:
            console.print(f"source:    {source}\nreference: {references[0]}")
        if config.trace:
            console.print(f"{way.strategy}; {way.legend}", *way.lines(), sep="\n")
        console.print(way.output)
        examples.append(Example(source, references, [way]))
    return Page(page, examples) if config.trace else None


def questions(config: DictConfig, data: TextDataModule) -> EvaluationQuestions:
    """The text that was given, or else the first sentences of the test split with their references."""
    if config.text is None:
        return data.questions("test").first(config.sentences)
    text = standard_input() if config.text == "-" else str(config.text)
    return EvaluationQuestions(data.encode_sources([text]), [text], references=[], cut=[False])


if __name__ == "__main__":
    cli.run(main)
