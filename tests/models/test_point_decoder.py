"""Diffusion over embeddings with an encoder and a decoder: padding, inputs, learning by heart."""

import pytest
import torch
from torch import Tensor

from rdm.decoding.gaussian import GaussianSampler
from rdm.diffusion.gaussian import GaussianProcess
from rdm.diffusion.schedule import Sqrt
from rdm.diffusion.step_importance import LossProportionalSteps
from rdm.models.diffuseq import PointTransformer
from rdm.models.point_decoder import CDCDDecoder, SeqDiffuSeqDenoiser
from rdm.systems.diffuseq import DiffuSeqSystem
from rdm.vocab import Vocab
from tests.builders import batch_from, overfit
from tests.decoding.helpers import seeded

VOCAB = Vocab(size=20)
SIZES = {"embedding": 16, "dim": 64, "hidden": 128, "heads": 2, "layers": 2, "max_length": 8, "init_std": 0.125}
OFF = {"dropout": 0.0, "attention_dropout": 0.0, "pre_norm": True}


@pytest.fixture(params=["diffuseq", "cdcd"])
def denoiser(request: pytest.FixtureRequest) -> PointTransformer:
    torch.manual_seed(0)
    if request.param == "cdcd":
        return CDCDDecoder(VOCAB, **SIZES, **OFF).eval()
    return SeqDiffuSeqDenoiser(0.5, vocab=VOCAB, **SIZES, **OFF).eval()


def points(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, 16, generator=seeded(rows))


SOURCE = torch.randint(5, VOCAB.size, (3, 7), generator=seeded(4))


def test_padding_of_the_source_does_not_change_the_prediction(denoiser: PointTransformer) -> None:
    z, t = points(3, 6), torch.tensor([1, 5, 900])
    padded = torch.cat([SOURCE, torch.full((3, 3), VOCAB.pad)], 1)
    narrow, wide = (denoiser(z, t, denoiser.encode(side)) for side in (SOURCE, padded))
    torch.testing.assert_close(narrow, wide, rtol=1e-4, atol=1e-5)


def test_every_input_changes_the_prediction(denoiser: PointTransformer) -> None:
    """Source, its order, step, order of the points, another point, the previous prediction."""
    z, t, source = points(3, 6), torch.tensor([3, 3, 3]), denoiser.encode(SOURCE)
    base = denoiser(z, t, source)

    def differs(other: Tensor) -> bool:
        return not torch.allclose(base[:, 2], other[:, 2], atol=1e-4)

    assert differs(denoiser(z, t, denoiser.encode(SOURCE.roll(1, 0))))
    assert differs(denoiser(z, t, denoiser.encode(SOURCE.flip(1))))
    assert differs(denoiser(z, t + 500, source))
    assert differs(denoiser(z.roll(1, 1), t, source).roll(-1, 1))
    moved = z.clone()
    moved[:, 5] += 1
    assert differs(denoiser(moved, t, source))
    assert differs(denoiser(z, t, source, z))


def test_source_words_do_not_pass_through_the_diffused_embedding(denoiser: PointTransformer) -> None:
    before = denoiser.encode(SOURCE).states
    with torch.no_grad():
        denoiser.tokens.weight.add_(1.0)
    assert torch.equal(before, denoiser.encode(SOURCE).states)
    assert denoiser.positions.weight.shape == (10, 64)  # of the target only


@pytest.mark.slow
def test_overfits_32_pairs() -> None:
    """With importance-sampled steps; in fewer steps than the single stack."""
    generator = seeded(1)
    lengths = torch.randint(2, 6, (64,), generator=generator).tolist()
    sides = [torch.randint(5, VOCAB.size, (length,), generator=generator).tolist() for length in lengths]
    batch = batch_from(VOCAB, list(zip(sides[:32], sides[32:], strict=True)))
    torch.manual_seed(1)
    denoiser = SeqDiffuSeqDenoiser(0.5, vocab=VOCAB, **SIZES | {"max_length": 6}, **OFF)
    system = DiffuSeqSystem(VOCAB, GaussianProcess(Sqrt(2000, 1e-4)), denoiser, LossProportionalSteps())
    overfit(system, batch, steps=400, lr=4e-3)
    tokens = system.generate(batch.source, GaussianSampler("x", 10, eta=0.0), seeded()).tokens
    assert (tokens == system.canvas(batch.target)).all(1).float().mean() >= 0.9
