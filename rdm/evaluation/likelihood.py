"""Nats and bits per token of a split, with their standard errors."""

import math
from typing import Literal

import torch
from torch import Tensor

from rdm.data.corpus import Split
from rdm.data.module import TextDataModule
from rdm.evaluation.metrics.base import Metric
from rdm.systems.base import System


def likelihood_metrics(
    system: System,
    data: TextDataModule,
    split: Split,
    limit: int | None,
    batch_size: int,
    draws: int | Literal["all"],
    seed: int,
) -> list[Metric]:
    """Compute ``nats_per_token`` and ``bits_per_token`` of the first ``limit`` targets of a split.

    Args:
        draws: Monte-Carlo draws per sentence; "all" sums over every diffusion step.
        seed: of the Monte-Carlo draws.
    """
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    examples = data.examples(split)
    nats, tokens, kind = [], [], ""
    indices = range(len(examples))[:limit]
    settings = {"draws": draws}
    for start in range(0, len(indices), batch_size):
        batch = examples[indices[start : start + batch_size]]
        batch.source, batch.target = batch.source.to(device), batch.target.to(device)
        likelihood = system.likelihood(batch, None if draws == "all" else draws, generator)
        if likelihood is None:
            reason = f"{type(system).__name__} has no likelihood"
            names = ("nats_per_token", "bits_per_token")
            return [Metric(name, None, skipped=reason, settings=settings) for name in names]
        nats.append(likelihood.nats.cpu())
        tokens.append(likelihood.tokens.cpu())
        kind = likelihood.kind
    value, error = ratio(torch.cat(nats), torch.cat(tokens))
    signature = f"{kind}|end:counted" if kind == "exact" else f"{kind}|draws:{draws}|end:counted"
    bits_error = None if error is None else error / math.log(2)
    return [
        Metric("nats_per_token", value, signature, error, settings=settings),
        Metric("bits_per_token", value / math.log(2), signature, bits_error, settings=settings),
    ]


def ratio(nats: Tensor, tokens: Tensor) -> tuple[float, float | None]:
    """``sum nats / sum tokens`` over sentences, and its standard error by the delta method.

    Sentences are assumed to be independent, so the error covers the choice of sentences and the Monte-Carlo draws.
    """
    value, count = nats.sum() / tokens.sum(), len(nats)
    if count < 2:
        return value.item(), None
    variance = ((nats - value * tokens) ** 2).sum() * count / (count - 1)
    return value.item(), (variance.sqrt() / tokens.sum()).item()
