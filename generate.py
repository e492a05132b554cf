"""Decode one sentence: ``python generate.py ckpt=outputs/<run> text="..." [trace=true]``; see conf/generate.yaml."""

import sys

import hydra
import torch
from omegaconf import DictConfig
from rich.console import Console

from rdm import cli
from rdm.config import GenerateOptions, check_options
from rdm.decoding.trace import lines
from rdm.errors import UserError
from rdm.runs import load


def standard_input() -> str:
    """All of it, whatever the locale says it is."""
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise UserError(f"text=-: standard input is not UTF-8: {error.reason} at byte {error.start}") from error


@hydra.main(version_base="1.3", config_path="conf", config_name="generate")
@cli.job
def main(config: DictConfig) -> None:
    check_options(config, GenerateOptions)
    loaded = load(config)
    system, decoding, data = loaded.system, loaded.decoding, loaded.data
    console = Console(soft_wrap=True, highlight=False, markup=False)
    text, trace = config.text, decoding.trace()
    if text == "-":
        text = standard_input()
    if text is None:
        asked = data.questions("test").first(1)
        text = asked.sources[0]
        console.print(f"source:    {text}\nreference: {asked.references[0][0]}")
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(config.seed)
    template = None if config.template is None else data.template(str(config.template)).to(device)
    source = data.sources(data.encode_sources([str(text)])).to(device)
    best = system.generate(source, decoding, generator, trace, template)
    if config.trace:
        console.print(f"{decoding}; {trace.legend}")
        for iteration, line in enumerate(lines(trace, int(best.rows[0]), data.tokenizer)):
            console.print(f"{iteration:>3}  {line}")
    console.print(data.tokenizer.decode(best.tokens.tolist())[0])


if __name__ == "__main__":
    cli.run(main)
