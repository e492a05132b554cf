"""What is measured: systems with random weights on random text, built from the configuration all others are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import Tensor

from rdm.bench.measure import Measurement, Stopwatch, measure
from rdm.data.batching import Batch, counts_of
from rdm.models.int8 import in_int8
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.training.module import combine
from rdm.training.setup import computes_in_bf16
from rdm.vocab import Vocab

CONF = Path(__file__).parent.parent.parent / "conf"
TOKENS = "target tokens/s"
SENTENCES = "sentences/s"


@dataclass(frozen=True)
class Size:
    """How large the models are, and how often they are asked."""

    model: str
    growing: str  # the model that growth is measured with
    language_model: str
    vocabulary: int
    repetitions: int  # of a training step; decoding is repeated three times
    sources: int  # decoded at once by the strategies
    vocabularies: tuple[int, ...]  # these four: what growth is measured over
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    iterations: tuple[int, ...]


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
)


# The authors' implementation, per GFLOP/s, measured with the same model on two CPU cores: target tokens/s in training,
# and sentences/s of its adaptive decoding (25 sources, 5 candidates, 10 iterations).
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
)


def build(size: int, *choices: str) -> tuple[System, Any]:
    """A system and a decoding strategy with random weights, for a vocabulary of ``size``."""
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        config = compose("train", list(choices))
    config.vocab = {**config.vocab, "size": size}
    torch.manual_seed(0)
    return instantiate(config.system), instantiate(config.decoding)


def random_batch(vocabulary: int, sentences: int, length: int, given: bool = True) -> Batch:
    """``sentences`` pairs of ``length`` tokens each side, special symbols included; or windows with nothing given."""
    vocab = Vocab(vocabulary)
    source, target = torch.randint(len(vocab.specials), vocabulary, (2, sentences, length))
    for side in (source, target):
        side[:, 0], side[:, -1] = vocab.bos, vocab.eos
    source = source if given else source[:, :0]
    return Batch(source, target, torch.arange(sentences), counts_of(target, vocab))


class FixedLengths:
    """Length candidates of ``length`` tokens, whatever an untrained head says."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, logits: Tensor, count: int) -> Tensor:
        return torch.full((len(logits), count), self.length)


def train(section: str, name: str, system: System, batch: Batch, repetitions: int, bf16: bool = False) -> Measurement:
    """Forward, backward and update: no clipping, averaging, guard or logging, which a run has as well."""
    system.train()
    optimizer = torch.optim.AdamW(system.parameters(), fused=True)

    def step(watch: Stopwatch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            terms = system.loss(batch)
        loss = combine(terms, {term.name: term.total / batch.counts[term.unit] for term in terms})
        with watch.running():  # the gradient of a loss is computed with the loss: all of this is the network's
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()

    return measure(section, name, TOKENS, float(batch.counts["tokens"]), step, repetitions)


def decode(section: str, name: str, system: System, decoding: Any, source: Tensor, repetitions: int = 3) -> Measurement:
    """Sentences as long as their sources: candidates of one length, with no padding and so no mask.

    What does not choose lengths writes as much as it always does.
    """
    system.eval()
    length = source.shape[1] - 2
    decoding.length_choice = FixedLengths(length)
    if isinstance(system, AutoregressiveSystem):
        system.decoder.max_length = length  # an untrained model does not know when to end
    action = lambda watch: system.generate(source, decoding)  # noqa: E731
    return measure(section, name, SENTENCES, len(source), action, repetitions)


def training(size: Size) -> Iterator[Measurement]:
    """Every system, the diffusion systems with one noised copy of a sentence and with a conditioned pair."""
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
    windows = random_batch(vocabulary, 8, 64, given=False)
    for name in ("lm", "ar_lm"):
        system, _ = build(vocabulary, f"system={name}", f"model={size.language_model}")
        yield train("training", f"{name} ({size.language_model})", system, windows, repetitions)


def decoding(size: Size) -> Iterator[Measurement]:
    """The strategies with 10 iterations and 5 candidates (``mbr``: 10), what makes them faster, and other systems'."""
    source, model = random_batch(size.vocabulary, size.sources, 24).source, f"model={size.model}"
    for diffusion, strategy in (
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
        system, how = build(size.vocabulary, f"diffusion={diffusion}", f"decoding={strategy}", model)
        yield decode("decoding", f"{diffusion}, {strategy}", system, how, source)
    for diffusion in ("rdm_absorbing", "rdm_multinomial"):
        system, how = build(size.vocabulary, f"diffusion={diffusion}", "decoding=rdm", model)
        yield decode("decoding", f"{diffusion}, rdm, int8", in_int8(system.eval()), how, source)
        how.prune_after = 4  # RESULTS.md has what that costs on real text
        yield decode("decoding", f"{diffusion}, rdm, pruned after 4", system, how, source)
        yield decode("decoding", f"{diffusion}, rdm, pruned after 4, int8", in_int8(system), how, source)
    system, how = build(size.vocabulary, "system=diffuseq")
    yield decode("decoding", "diffuseq (diffuseq_tiny), diffuseq_ddim", system, how, source)
    prompts = random_batch(size.vocabulary, 4, 16).source  # to be continued to windows of 64 tokens
    for name, strategy in (("lm", "open_ended"), ("ar_lm", "left_to_right")):
        system, how = build(size.vocabulary, f"system={name}", f"model={size.language_model}")  # brings its strategy
        yield decode("decoding", f"{name} ({size.language_model}), {strategy}, 48 tokens", system, how, prompts)


def latency(size: Size) -> Iterator[Measurement]:
    """One length candidate against the autoregressive model of the same size, by sentences at once."""
    one = "decoding=rdm", "decoding.length_candidates=1"
    for name, *choices in (
        ("rdm_absorbing, 4 iterations", *one, "decoding.steps=4"),
        ("rdm_absorbing, 10 iterations", *one, "decoding.steps=10"),
        ("ar, greedy", "system=ar", "decoding=greedy"),
        ("ar, beam", "system=ar", "decoding=beam"),
    ):
        system, how = build(size.vocabulary, *choices, f"model={size.model}")
        for sources in (1, 8, 32):
            yield decode(f"batch {sources}", name, system, how, random_batch(size.vocabulary, sources, 24).source)


def growth(size: Size) -> Iterator[Measurement]:
    """Training and decoding of RDM-absorbing as one thing grows and the others stay."""

    def both(
        what: str, value: int, vocabulary: int = 1000, sentences: int = 16, length: int = 24, steps: int = 4
    ) -> Iterator[Measurement]:
        system, how = build(vocabulary, f"model={size.growing}", f"decoding.steps={steps}", "model.max_length=256")
        batch = random_batch(vocabulary, sentences, length)
        if what != "iterations":
            yield train(f"training by {what}", str(value), system, batch, size.repetitions)
        yield decode(f"decoding by {what}", str(value), system, how, batch.source)

    for value in size.vocabularies:
        yield from both("vocabulary", value, vocabulary=value)
    for value in size.lengths:
        yield from both("length", value, length=value)
    for value in size.batches:
        yield from both("batch", value, sentences=value)
    for value in size.iterations:
        yield from both("iterations", value, steps=value)


def loading(size: Size) -> Iterator[Measurement]:
    """One epoch of the generated text, from the prepared files to padded batches."""
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        config = compose("train", [f"data.corpus.train_size={size.vocabulary * 2}"])
    data = instantiate(config.data.module)
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    tokens = float(sum(batch.counts["tokens"] for batch in loader))
    yield measure("data", "toy_translation", TOKENS, tokens, lambda watch: sum(1 for _ in loader), size.repetitions)


SECTIONS = (training, decoding, latency, growth, loading)
