"""Decode many sources: like lengths together, the results in the order asked for."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from rich.progress import track

from rdm.data.module import TextDataModule
from rdm.errors import require
from rdm.systems.base import System


def translate(
    system: System,
    decoding: Any,
    data: TextDataModule,
    rows: Sequence[list[int]],
    batch_size: int,
    seed: int,
    progress: bool = True,
) -> tuple[list[str], float]:
    """Outputs for sources given as ``rows`` of ids, and the seconds spent decoding (tokenisation not counted)."""
    require(batch_size >= 1, f"batch_size must be at least 1, got {batch_size}")
    device = next(system.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    outputs, seconds = [""] * len(rows), 0.0
    starts = range(0, len(order), batch_size)
    for start in track(starts, str(decoding), disable=not progress):
        indices = order[start : start + batch_size]
        batch = data.sources([rows[i] for i in indices]).to(device)
        began = time.perf_counter()
        tokens = system.generate(batch, decoding, generator).tokens.cpu()
        seconds += time.perf_counter() - began
        for index, text in zip(indices, data.tokenizer.decode(tokens.tolist()), strict=True):
            outputs[index] = text
    return outputs, seconds
