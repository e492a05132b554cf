"""The denoiser of DiffuSeq: source and target half, padding, size."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import Tensor

from rdm.models.diffuseq import DiffuSeqDenoiser, EncodedSource
from rdm.vocab import Vocab
from tests.builders import tiny_diffuseq_denoiser

VOCAB = Vocab(size=40)
CONF = Path(__file__).parent.parent.parent / "conf"


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def denoiser(request: pytest.FixtureRequest) -> DiffuSeqDenoiser:
    torch.manual_seed(0)
    return tiny_diffuseq_denoiser(VOCAB, pre_norm=request.param).eval()


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(5, VOCAB.size, (rows, length), generator=torch.Generator().manual_seed(rows * 100 + length))


def points(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, 16, generator=torch.Generator().manual_seed(rows))


def test_padding_of_the_source_does_not_change_the_prediction(denoiser: DiffuSeqDenoiser) -> None:
    source, z, t = tokens(3, 7), points(3, 6), torch.tensor([1, 5, 900])
    padded = torch.cat([source, torch.full((3, 4), VOCAB.pad)], 1)
    narrow, wide = (denoiser(z, t, denoiser.encode(side)) for side in (source, padded))
    assert narrow.shape == z.shape
    torch.testing.assert_close(narrow, wide, rtol=1e-4, atol=1e-5)


def test_every_input_changes_the_prediction(denoiser: DiffuSeqDenoiser) -> None:
    """Source, its order, step, the order of points and the points on both sides."""
    source, z, t = tokens(1, 7), points(1, 6), torch.tensor([3])
    base = denoiser(z, t, denoiser.encode(source))

    def differs(other: Tensor, position: int = 2) -> bool:
        return not torch.allclose(base[:, position], other[:, position], atol=1e-4)

    assert differs(denoiser(z, t, denoiser.encode(source.flip(1))))
    assert differs(denoiser(z, t + 500, denoiser.encode(source)))
    assert differs(denoiser(z.roll(1, 1), t, denoiser.encode(source)).roll(-1, 1))
    for changed in (0, 5):
        moved = z.clone()
        moved[0, changed] += 1
        assert differs(denoiser(moved, t, denoiser.encode(source)))


def test_source_and_target_have_different_positions(denoiser: DiffuSeqDenoiser) -> None:
    """Equal words at equal positions have different inputs as source and as target."""
    source, t = tokens(1, 6), torch.tensor([3])
    as_target = denoiser(denoiser.tokens(source), t, denoiser.encode(source))
    nothing = EncodedSource(torch.zeros(1, 0, 32), torch.zeros(1, 0, dtype=torch.bool))
    shifted = denoiser.up(denoiser.tokens(source)) + denoiser.positions.weight[denoiser.width : denoiser.width + 6]
    assert not torch.allclose(denoiser.encode(source).states, shifted, atol=1e-3)
    assert not torch.allclose(as_target, denoiser(denoiser.tokens(source), t, nothing), atol=1e-3)


def test_published_size() -> None:
    """BERT-base with its vocabulary and embeddings of width 128: 91M."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["system=diffuseq", "model=diffuseq", "vocab.size=30522"])
    with torch.device("meta"):
        denoiser = instantiate(config.model)
    assert 90e6 < sum(parameter.numel() for parameter in denoiser.parameters()) < 93e6
