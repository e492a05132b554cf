"""Random text for benchmarks and plans."""

import torch

from rdm.data.batch import Batch
from rdm.vocab import Vocab


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
    return Batch(source, target, torch.arange(sentences))
