"""Decode many sources: like lengths together, the results in the order asked for."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.progress import track

from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.systems.base import System


@dataclass(frozen=True)
class Outputs:
    """What came out for each source."""

    texts: list[str]
    candidates: list[list[str]]  # all that each text was chosen from, itself included
    seconds: float  # spent decoding, tokenisation not counted


def translate(
    system: System,
    decoding: Any,
    data: TextDataModule,
    rows: Sequence[list[int]],
    batch_size: int,
    seed: int,
    progress: bool = True,
) -> Outputs:
    """Outputs for sources given as ``rows`` of ids."""
    require(batch_size >= 1, f"batch_size must be at least 1, got {batch_size}")
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    outputs: dict[int, tuple[str, list[str]]] = {}
    seconds = 0.0
    starts = range(0, len(order), batch_size)
    for start in track(starts, str(decoding), disable=not progress):
        indices = order[start : start + batch_size]
        batch = data.sources([rows[i] for i in indices]).to(device)
        began = time.perf_counter()
        best = system.generate(batch, decoding, generator)
        tokens = best.tokens.cpu()
        seconds += time.perf_counter() - began
        texts = data.tokenizer.decode(tokens.tolist())
        groups = [[text] for text in texts]
        if best.candidates is not None:
            several = data.tokenizer.decode(best.candidates.tokens.flatten(0, 1).tolist())
            count = best.candidates.tokens.shape[1]
            groups = [several[i : i + count] for i in range(0, len(several), count)]
        for index, text, group in zip(indices, texts, groups, strict=True):
            outputs[index] = text, group
    ordered = [outputs[index] for index in range(len(rows))]
    return Outputs([text for text, _ in ordered], [group for _, group in ordered], seconds)
