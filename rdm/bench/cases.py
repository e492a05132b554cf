"""Benchmark cases: systems with random weights on random text, built from the same configuration as runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hydra.utils import instantiate
from torch import Tensor

from rdm.app.composition import compose_config
from rdm.bench.around import around as commands_and_parts
from rdm.bench.inputs import random_batch
from rdm.bench.timing import Measurement, Stopwatch, time_action
from rdm.data.batch import Batch
from rdm.describe import with_argument
from rdm.models.int8 import in_int8
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.training.module import combine
from rdm.training.setup import computes_in_bf16

TOKENS = "target tokens/s"
SENTENCES = "sentences/s"


@dataclass(frozen=True)
class Size:
    """Sizes of models and inputs, and numbers of repetitions."""

    model: str
    growing: str  # the model of the section ``growth``
    language_model: str
    vocabulary: int
    repetitions: int  # of a training step; decoding is repeated 3 times
    sources: int  # batch size of the section ``decoding``
    vocabularies: tuple[int, ...]  # the last four are the values of the section ``growth``
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    iterations: tuple[int, ...]
    steps: int  # of the training run of the section ``around``


FULL = Size(
    model="iwslt14",
    growing="small",
    language_model="llama_small",
    vocabulary=10_152,
    repetitions=5,
    sources=25,
    vocabularies=(1000, 10_000, 40_000),
    lengths=(16, 64, 256),
    batches=(8, 32, 128),
    iterations=(2, 10, 25),
    steps=480,
)


# Rates of the authors' implementation per GFLOP/s, measured with the same model on two CPU cores: target tokens/s in
# training, and sentences/s of its adaptive decoding (25 sources, 5 candidates, 10 iterations).
OFFICIAL = {
    ("training", "rdm_absorbing, conditioned"): 1.25,
    ("training", "rdm_multinomial, conditioned"): 0.88,
    ("training", "multinomial, conditioned"): 0.7,
    ("decoding", "rdm_absorbing, rdm"): 0.0102,
    ("decoding", "rdm_multinomial, rdm"): 0.0043,
}


QUICK = Size(
    model="tiny",
    growing="tiny",
    language_model="llama_tiny",
    vocabulary=1000,
    repetitions=3,
    sources=2,
    vocabularies=(1000, 10_000),
    lengths=(16, 64),
    batches=(8, 32),
    iterations=(2, 10),
    steps=20,
)


def build(size: int, *choices: str) -> tuple[System, Any]:
    """Return a system with random weights and a decoding strategy, for a vocabulary of ``size``."""
    config = compose_config("train", choices)
    config.vocab = {**config.vocab, "size": size}
    torch.manual_seed(0)
    return instantiate(config.system), instantiate(config.decoding)


class FixedLengths:
    """Length choice that ignores the length head: all candidates have ``length`` tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        return torch.full((len(logits), count), self.length)


def train(section: str, name: str, system: System, batch: Batch, repetitions: int, bf16: bool = False) -> Measurement:
    """Time forward, backward and update, without the clipping, EMA, guard and logging of a run."""
    system.train()
    optimizer, counts = torch.optim.AdamW(system.parameters(), fused=True), system.counts(batch)

    def step(watch: Stopwatch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            terms = system.loss(batch)
        loss = combine(terms, {term.name: term.total / counts[term.unit] for term in terms})
        with watch.running():  # all of the backward pass is counted as the network
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()

    return time_action(section, name, TOKENS, float(counts["tokens"]), step, repetitions)


def decode(section: str, name: str, system: System, decoding: Any, source: Tensor, repetitions: int = 3) -> Measurement:
    """Time decoding of sentences as long as their sources, without padding and masks.

    Strategies that do not choose a length are unaffected.
    """
    system.eval()
    length = source.shape[1] - 2
    decoding.length_choice = FixedLengths(length)
    if isinstance(system, AutoregressiveSystem):
        system.decoder.max_length = length  # an untrained model does not predict <eos>
    action = lambda watch: system.generate(source, decoding)  # noqa: E731
    return time_action(section, name, SENTENCES, len(source), action, repetitions)


def training(size: Size) -> Iterator[Measurement]:
    """Time training of every system; diffusion systems with one noised copy and with a conditioned pair."""
    batch, vocabulary, repetitions = random_batch(size.vocabulary, 64, 24), size.vocabulary, size.repetitions
    for diffusion in ("rdm_absorbing", "rdm_multinomial", "absorbing", "multinomial"):
        for pairing in ("conditioned", "single"):
            choices = f"diffusion={diffusion}", f"diffusion/pairing={pairing}", f"model={size.model}"
            system, _ = build(vocabulary, *choices)
            yield train("training", f"{diffusion}, {pairing}", system, batch, repetitions)
            if pairing == "single" and computes_in_bf16():
                yield train("training", f"{diffusion}, {pairing}, bf16", system, batch, repetitions, bf16=True)
    for name in ("cmlm", "ar"):
        system, _ = build(vocabulary, f"system={name}", f"model={size.model}")
        yield train("training", name, system, batch, repetitions)
    system, _ = build(vocabulary, "system=diffuseq")
    yield train("training", "diffuseq (diffuseq_tiny)", system, batch, repetitions)
    windows = random_batch(vocabulary, 8, 64, with_source=False)
    for name in ("lm", "ar_lm"):
        system, _ = build(vocabulary, f"system={name}", f"model={size.language_model}")
        yield train("training", f"{name} ({size.language_model})", system, windows, repetitions)


def decoding(size: Size) -> Iterator[Measurement]:
    """Time the strategies with 10 iterations and 5 candidates (``mbr``: 10), int8 and pruning, and other systems."""
    source, model = random_batch(size.vocabulary, size.sources, 24).source, f"model={size.model}"
    for diffusion, choice in (
        ("rdm_absorbing", "rdm"),
        ("rdm_multinomial", "rdm"),
        ("rdm_absorbing", "rdm_gumbel"),
        ("rdm_absorbing", "rdm_cond"),
        ("rdm_absorbing", "rdm_commit"),
        ("rdm_absorbing", "mask_predict"),
        ("rdm_absorbing", "vanilla"),
        ("multinomial", "vanilla"),
        ("rdm_absorbing", "mbr"),
    ):
        system, strategy = build(size.vocabulary, f"diffusion={diffusion}", f"decoding={choice}", model)
        yield decode("decoding", f"{diffusion}, {choice}", system, strategy, source)
    for diffusion in ("rdm_absorbing", "rdm_multinomial"):
        system, strategy = build(size.vocabulary, f"diffusion={diffusion}", "decoding=rdm", model)
        yield decode("decoding", f"{diffusion}, rdm, int8", in_int8(system.eval()), strategy, source)
        strategy = with_argument(strategy, "prune_after", 4)  # its effect on quality is in RESULTS.md
        yield decode("decoding", f"{diffusion}, rdm, pruned after 4", system, strategy, source)
        yield decode("decoding", f"{diffusion}, rdm, pruned after 4, int8", in_int8(system), strategy, source)
    system, strategy = build(size.vocabulary, "system=diffuseq")
    yield decode("decoding", "diffuseq (diffuseq_tiny), diffuseq_ddim", system, strategy, source)
    prompts = random_batch(size.vocabulary, 4, 16).source  # continued to windows of 64 tokens
    for name, choice in (("lm", "open_ended"), ("ar_lm", "left_to_right")):
        system, strategy = build(
            size.vocabulary, f"system={name}", f"model={size.language_model}"
        )  # sets its own strategy
        yield decode("decoding", f"{name} ({size.language_model}), {choice}, 48 tokens", system, strategy, prompts)


def latency(size: Size) -> Iterator[Measurement]:
    """Time one length candidate and the autoregressive model of the same size, by batch size."""
    one = "decoding=rdm", "decoding.length_candidates=1"
    for name, *choices in (
        ("rdm_absorbing, 4 iterations", *one, "decoding.steps=4"),
        ("rdm_absorbing, 10 iterations", *one, "decoding.steps=10"),
        ("ar, greedy", "system=ar", "decoding=greedy"),
        ("ar, beam", "system=ar", "decoding=beam"),
    ):
        system, strategy = build(size.vocabulary, *choices, f"model={size.model}")
        for sources in (1, 8, 32):
            yield decode(f"batch {sources}", name, system, strategy, random_batch(size.vocabulary, sources, 24).source)


def growth(size: Size) -> Iterator[Measurement]:
    """Time training and decoding of RDM-absorbing as one dimension grows and the others are fixed."""

    def both(
        dimension: str, value: int, vocabulary: int = 1000, sentences: int = 16, length: int = 24, steps: int = 4
    ) -> Iterator[Measurement]:
        system, strategy = build(vocabulary, f"model={size.growing}", f"decoding.steps={steps}", "model.max_length=256")
        batch = random_batch(vocabulary, sentences, length)
        if dimension != "iterations":
            yield train(f"training by {dimension}", str(value), system, batch, size.repetitions)
        yield decode(f"decoding by {dimension}", str(value), system, strategy, batch.source)

    for value in size.vocabularies:
        yield from both("vocabulary", value, vocabulary=value)
    for value in size.lengths:
        yield from both("length", value, length=value)
    for value in size.batches:
        yield from both("batch", value, sentences=value)
    for value in size.iterations:
        yield from both("iterations", value, steps=value)


def loading(size: Size) -> Iterator[Measurement]:
    """Time one epoch of the generated text, from prepared files to padded batches."""
    config = compose_config("train", [f"data.corpus.train_size={size.vocabulary * 2}"])
    data = instantiate(config.data.module)
    data.prepare_data()
    loader = data.train_dataloader()
    tokens = float(sum(batch.counts["tokens"] for batch in loader))
    yield time_action("data", "toy_translation", TOKENS, tokens, lambda watch: sum(1 for _ in loader), size.repetitions)


def around(size: Size) -> Iterator[Measurement]:
    """Time from commands to their first result, and the parts of a training run (see :mod:`rdm.bench.around`)."""
    return commands_and_parts("tiny", size.steps, max(size.repetitions // 2, 1))


SECTIONS = (training, decoding, latency, growth, loading, around)
