"""Mask-Predict against a decoding computed by hand."""

import math

import pytest
import torch
from torch import Tensor

from rdm.decoding.routing import MaskPredict
from rdm.decoding.sampler import Canvas
from rdm.diffusion.noise import Absorbing
from rdm.vocab import Vocab
from tests.decoding.helpers import Recorder, make_process, make_sampler

VOCAB = Vocab(size=15)
BOS, EOS, M = VOCAB.bos, VOCAB.eos, VOCAB.mask
A, B, C, D, E, F = range(5, 11)

# Input of the network, and its predictions at the masks: a token and its probability. After iteration i the 4 - i
# tokens of lowest probability are masked again. A token that stays keeps the probability it was predicted with; the
# network is not called there.
SCRIPT: list[tuple[list[int], dict[int, tuple[int, float]]]] = [
    ([M, M, M, M], {0: (A, 0.9), 1: (B, 0.3), 2: (C, 0.6), 3: (D, 0.5)}),  # A stays
    ([A, M, M, M], {1: (E, 0.8), 2: (C, 0.4), 3: (D, 0.7)}),  # A and E stay
    ([A, E, M, M], {2: (F, 0.95), 3: (B, 0.85)}),  # E has the lowest probability of the four and is masked again
    ([A, M, F, B], {1: (D, 0.2)}),
]
RESULT = [BOS, A, D, F, B, EOS]


class Scripted:
    """Returns the scripted predictions and checks its input."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        shown, answers = SCRIPT[self.calls]
        self.calls += 1
        assert tokens.tolist() == [[BOS, *shown, EOS]]
        assert (positions.nonzero()[:, 1] - 1).tolist() == list(answers)
        probs = torch.zeros(len(answers), VOCAB.size)
        for row, (token, p) in zip(probs, answers.values(), strict=True):
            row[len(VOCAB.specials) :] = (1 - p) / (VOCAB.size - len(VOCAB.specials) - 1)
            row[token] = p
        return probs.log()


def test_decoding_equals_the_script() -> None:
    tokens = torch.tensor([[BOS, M, M, M, M, EOS]])
    process, denoise, recorder = make_process(Absorbing(VOCAB, noise_specials=False), 10), Scripted(), Recorder()
    canvas = Canvas(tokens, pinned=tokens != M)
    decoded = make_sampler(MaskPredict(), 4).run(process, denoise, canvas, observer=recorder)
    assert denoise.calls == len(recorder) == 4
    assert decoded.tokens.tolist() == [RESULT]
    assert float(decoded.scores) == pytest.approx(sum(map(math.log, (0.9, 0.2, 0.95, 0.85))) / 4)
