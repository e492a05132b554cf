"""``rdm.calibrate``: one decoding gives the same choices as decoding with each number of candidates and weight."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rdm.calibrate import calibrate
from rdm.decoding.candidates import LengthAwareScore
from rdm.decoding.routing import Commit
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.errors import UserError
from rdm.evaluation.generation import decode_sources
from rdm.evaluation.metrics.corpus import sacre_bleu
from tests.builders import batch_of, overfit, tiny_system, toy_data

CASES = [(1, 0.0), (2, 0.0), (3, 0.0), (3, 0.5)]


def sampler(candidates: int, **options: Any) -> Sampler:
    return Sampler("commit", 3, Commit(), Linear(), length_candidates=candidates, **options)


@pytest.fixture(scope="module")
def model() -> Any:
    """A model after few steps, so that its candidates differ."""
    data = toy_data(train=16)
    torch.manual_seed(0)
    system = tiny_system(data.vocab)
    overfit(system, batch_of(data, list(range(16))), steps=40, lr=5e-3)
    return SimpleNamespace(
        system=system,
        codec=data.codec,
        data=lambda: data,
        run=SimpleNamespace(folder=Path("run")),
        decoding=lambda overrides: sampler(overrides.length_candidates),
    )


def test_equals_separate_decodings(model: Any) -> None:
    found = calibrate(model, 8, [1, 2, 3], [0.0, 0.5], batch_size=3)
    questions = model.data().questions("valid").first(8)
    scores = {}
    for count, weight in CASES:
        decoding = sampler(count, selection=LengthAwareScore(weight))
        outputs = decode_sources(model.system, decoding, model.codec, questions.rows, 3, seed=0)
        scores[count, weight] = sacre_bleu(outputs.texts, questions.references)[0]
    assert {key: found[key] for key in CASES} == pytest.approx(scores)
    assert len(set(scores.values())) > 1
    assert len(found) == 6


def test_refusals(model: Any) -> None:
    with pytest.raises(UserError, match="--candidates must be at least 1, got 0"):
        calibrate(model, 8, [0], [0.0])
    pruned = SimpleNamespace(**{**vars(model), "decoding": lambda _: sampler(2, prune_after=1)})
    with pytest.raises(UserError, match="decoding=commit does not decode one text per length"):
        calibrate(pruned, 8, [2], [0.0])  # type: ignore[arg-type]
