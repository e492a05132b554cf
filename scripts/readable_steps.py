"""Prints how often DiffuSeq's words can be read off their noised points, without the source.

For random embeddings of 291 words (the vocabulary of the generated text), by width and scale: the share of words whose
nearest embedding is the right one, over the 2,000 steps of ``system=diffuseq``.
"""

import torch

from rdm.diffusion.gaussian import GaussianProcess, nearest
from rdm.diffusion.schedule import Sqrt

WORDS, DRAWS = 291, 500


def main() -> None:
    process, generator = GaussianProcess(Sqrt(2000, 1e-4)), torch.Generator().manual_seed(0)
    for width, scale in [(16, 1.0), (16, 2.0), (128, 1.0), (4, 1.0), (16, 0.5)]:
        embeddings = scale * torch.randn(WORDS, width, generator=generator)
        words = torch.randint(0, WORDS, (DRAWS,), generator=generator)
        shares = []
        for t in range(1, 2001, 20):
            alpha = float(process.alpha[t])
            noise = torch.randn(DRAWS, width, generator=generator)
            points = embeddings[words] + ((1 - alpha) / max(alpha, 1e-6)) ** 0.5 * noise
            shares.append(float((nearest(points, embeddings) == words).float().mean()))
        right = torch.tensor(shares)
        at_least = (right >= 0.9).float().mean()
        print(
            f"width {width}, scale {scale}: right {right.mean():.2f}, at least 90% right at {at_least:.0%} of the steps"
        )


if __name__ == "__main__":
    main()
