"""Configurations and random text for benchmarks and plans."""

from collections.abc import Sequence
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from rdm.data.batching import Batch, counts_of
from rdm.vocab import Vocab

CONFIG_FOLDER = Path(__file__).resolve().parent.parent.parent / "conf"


def compose_config(name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose ``conf/<name>.yaml`` with overrides, outside a Hydra job."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return compose(name, list(overrides))


def random_batch(vocabulary: int, sentences: int, length: int, with_source: bool = True) -> Batch:
    """Return random sentence pairs with special symbols; with ``with_source=False``, windows of text without a source.

    Args:
        vocabulary: number of ids.
        length: tokens of each sentence, special symbols included.
    """
    vocab = Vocab(vocabulary)
    source, target = torch.randint(len(vocab.specials), vocabulary, (2, sentences, length))
    for side in (source, target):
        side[:, 0], side[:, -1] = vocab.bos, vocab.eos
    source = source if with_source else source[:, :0]
    return Batch(source, target, torch.arange(sentences), counts_of(target, vocab))
