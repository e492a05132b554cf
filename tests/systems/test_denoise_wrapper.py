"""A sampler may wrap the denoiser it is handed, as classifier-free guidance does."""

from typing import Any

import torch
from torch import Tensor

from rdm.decoding.sampler import Sampler
from rdm.vocab import Vocab
from tests.builders import sampler, tiny_system

VOCAB = Vocab(size=40)
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0]])
EMPTY = torch.tensor([[2, 3], [2, 3]])


class Guided(Sampler):
    """``scale * log p(x0 | source) + (1 - scale) * log p(x0)``, with an empty source for the second."""

    scale = 1.0

    def run(self, process: Any, denoise: Any, *others: Any) -> Any:
        unconditional = type(denoise)(denoise.denoiser, denoise.denoiser.encode(EMPTY))

        def guided(x_t: Tensor, t: Tensor, positions: Tensor) -> Tensor:
            pair = (call(x_t, t, positions).log_softmax(-1) for call in (denoise, unconditional))
            return torch.lerp(*reversed(list(pair)), self.scale)

        return super().run(process, guided, *others)


def test_guidance_wraps_the_denoiser() -> None:
    """Scale 1 is the conditional model, scale 0 the unconditional one, and 3 neither."""
    torch.manual_seed(0)
    system, lengths = tiny_system(VOCAB).eval(), torch.tensor([[5], [5]])
    plain, guided = sampler(candidates=1), sampler(candidates=1)
    guided.__class__ = Guided
    for decoding in (plain, guided):
        decoding.candidate_lengths = lambda logits: lengths  # type: ignore[method-assign]

    def decode(decoding: Sampler, source: Tensor, scale: float = 1.0) -> Tensor:
        guided.scale = scale
        return system.generate(source, decoding, torch.Generator().manual_seed(0)).tokens

    conditional, unconditional = decode(plain, SOURCE), decode(plain, EMPTY)
    assert not torch.equal(conditional, unconditional)
    assert torch.equal(decode(guided, SOURCE, scale=1.0), conditional)
    assert torch.equal(decode(guided, SOURCE, scale=0.0), unconditional)
    assert not torch.equal(decode(guided, SOURCE, scale=3.0), conditional)
