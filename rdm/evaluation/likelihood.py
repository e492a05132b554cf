"""Nats and bits a token over a split, with their standard error."""

import math
from typing import Literal

import torch
from torch import Tensor

from rdm.data.corpus import Split
from rdm.data.module import TextDataModule
from rdm.evaluation.metrics.base import Metric
from rdm.systems.base import System


def measure(
    system: System,
    data: TextDataModule,
    split: Split,
    limit: int | None,
    batch_size: int,
    draws: int | Literal["all"],
    seed: int,
) -> list[Metric]:
    """``nats_per_token`` and ``bits_per_token`` of the first ``limit`` targets of a split.

    Args:
        draws: Monte-Carlo draws a sentence; "all" sums over every step.
    """
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    examples = data.examples(split)
    nats, tokens, kind = [], [], ""
    indices = range(len(examples))[:limit]
    for start in range(0, len(indices), batch_size):
        batch = examples[indices[start : start + batch_size]]
        batch.source, batch.target = batch.source.to(device), batch.target.to(device)
        found = system.likelihood(batch, None if draws == "all" else draws, generator)
        if found is None:
            reason = f"{type(system).__name__} gives no likelihood"
            return [Metric(name, None, skipped=reason) for name in ("nats_per_token", "bits_per_token")]
        nats.append(found.nats.cpu())
        tokens.append(found.tokens.cpu())
        kind = found.kind
    mean, error = ratio(torch.cat(nats), torch.cat(tokens))
    signature = f"{kind}|end:counted" if kind == "exact" else f"{kind}|draws:{draws}|end:counted"
    bits = (mean / math.log(2), None if error is None else error / math.log(2))
    return [
        Metric("nats_per_token", mean, signature, error),
        Metric("bits_per_token", bits[0], signature, bits[1]),
    ]


def ratio(nats: Tensor, tokens: Tensor) -> tuple[float, float | None]:
    """``sum nats / sum tokens`` over sentences, and its standard error by the delta method.

    Sentences are taken for independent, so the error covers the choice of sentences as well as the Monte-Carlo draws.
    """
    mean, count = nats.sum() / tokens.sum(), len(nats)
    if count < 2:
        return mean.item(), None
    variance = ((nats - mean * tokens) ** 2).sum() * count / (count - 1)
    return mean.item(), (variance.sqrt() / tokens.sum()).item()
