"""Generate text with a trained model, or score given text; see conf/generate.yaml."""

import sys
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from rdm.app.checks import STDIN, check_generation, generation_use, overridden_keys
from rdm.app.distil import distil
from rdm.app.line_files import generate_lines, score_lines, standard_input, typed_lines
from rdm.app.model import Model
from rdm.app.open_model import load_configured, load_teacher
from rdm.app.trained_model import check_nbest
from rdm.data.questions import EvaluationQuestions
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.evaluation.generation import Generated
from rdm.page.page import Page
from rdm.page.trajectory import Example


def job(config: DictConfig) -> Page | None:
    """Decode or score the text that the configuration names."""
    check_generation(config)
    model = load_configured(config)
    use = generation_use(config)
    if config.score:
        score_lines(model, config)
        return None
    decoding = model.decoding(config.decoding, load_teacher(config, model))
    check_nbest(config.nbest, decoding)
    if use == "distil":
        distil(model, decoding, config)
    elif use == "interactive":
        converse(model, decoding, config)
    elif use in ("input", STDIN) and not config.trace and config.template is None:
        generate_lines(model, decoding, config)
    else:
        return show(model, decoding, config)
    return None


def show(model: Model, decoding: Decoding, config: DictConfig) -> Page | None:
    """Decode the given text, or the first sentences of the test split, and print the outputs."""
    page = Path(config.page or model.run.writable / "decoding.html")
    require(not page.is_dir(), f"page: {page} is a folder; name a file in it")
    questions = sources(config, model)
    templates = None if config.template is None else [str(config.template)] * len(questions)
    outputs = model.decode_rows(questions.rows, decoding, config.batch_size, config.seed, config.trace, templates)
    console, examples = Console(soft_wrap=True, highlight=False, markup=False), []
    for output, source, *references in zip(outputs, questions.sources, *questions.references, strict=True):
        if references:
            console.print(f"source:    {source}\nreference: {references[0]}")
        if output.trace is not None:
            console.print(f"{output.trace.strategy}; {output.trace.legend}", *output.trace.lines(), sep="\n")
            examples.append(Example(source, references, [output.trace]))
        if config.nbest == 1:
            console.print(output.text)
        else:
            print(*best_candidates(output, config.nbest), sep="\n", flush=True)  # the console would expand tabs
    return Page(page, examples) if config.trace else None


def best_candidates(output: Generated, nbest: int) -> list[str]:
    """The ``nbest`` best candidates after their scores: the returned one, then the others by score."""
    return [f"{candidate.score:.6g}\t{candidate.text}" for candidate in output.best(nbest)]


def sources(config: DictConfig, model: Model) -> EvaluationQuestions:
    """The given text or lines, or the first sentences of the test split with their references.

    A language model has no source besides the text with blanks.
    """
    if model.system.open_ended and config.template is not None:
        require(config.text is None, "text has no effect with a template of a language model: leave one out")
        return EvaluationQuestions([[]], [str(config.template)], references=[], cut=[False])
    if config.text is None:
        data = model.data(model.data_config(config.data, overridden_keys("data")))
        return data.questions("test").first(config.sentences)
    texts = [line for line in standard_input() if line] if config.text == "-" else [str(config.text)]
    require(len(texts) > 0, "text=-: standard input is empty")
    return EvaluationQuestions(model.codec.encode_sources(texts), texts, references=[], cut=[False] * len(texts))


def converse(model: Model, decoding: Decoding, config: DictConfig) -> None:
    """Read lines from standard input and answer each at once; a line that cannot be decoded is explained."""
    for line in typed_lines():
        try:
            (output,) = model.generate([line], decoding, nbest=None, seed=config.seed)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            continue
        print(*(best_candidates(output, config.nbest) if config.nbest > 1 else [output.text]), sep="\n", flush=True)
