"""Infilling: only the blanks of a template are filled, with any transition."""

import pytest
import torch

from rdm.decoding.jacobi import Jacobi
from rdm.decoding.transition import Outcome, State
from rdm.errors import UserError
from tests.builders import RECIPES, batch_of, tiny_any_order, tiny_system, toy_data
from tests.decoding.helpers import FEWER_ITERATIONS, TRANSITIONS, make_sampler, seeded
from tests.language_models import tiny_any_order_lm

BLANKS = [[1, 4], [2], [1, 2, 3, 5]]


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("transition", [name for name in TRANSITIONS if name != "jacobi"])
def test_pinned_tokens_never_change(transition: str, name: str) -> None:
    """In no iteration; and the blanks become text."""
    data = toy_data(train=3)
    torch.manual_seed(0)
    system, batch, vocab = tiny_system(data.vocab, name).eval(), batch_of(data, [0, 1, 2]), data.vocab
    blank = torch.zeros_like(batch.target, dtype=torch.bool)
    for row, places in enumerate(BLANKS):
        blank[row, places] = True
    template = batch.target.masked_fill(blank, vocab.mask)
    iterations = []

    def watch(state: State, outcome: Outcome) -> None:
        iterations.append(state.iteration)
        assert torch.equal(outcome.tokens[~blank], template[~blank])

    decoding = make_sampler(TRANSITIONS[transition](), 5, temperature=1.0)
    best = system.generate(batch.source, decoding, seeded(), watch, template)
    assert iterations == [1, 2, 3, 4, 5] or transition in FEWER_ITERATIONS
    assert iterations == list(range(1, len(iterations) + 1))
    assert torch.equal(best.tokens[~blank], template[~blank])
    filled = best.tokens[blank]
    assert system.process.noise.learnable[filled].all()
    other = system.generate(batch.source, decoding, seeded(1), template=template)
    assert not torch.equal(other.tokens[blank], filled)


def test_a_template_is_refused_where_later_tokens_are_not_read() -> None:
    data = toy_data(train=1)
    system, batch = tiny_any_order(data.vocab).eval(), batch_of(data, [0])
    with pytest.raises(UserError, match="decoding=test predicts tokens from those before them, so it cannot fill"):
        system.generate(batch.source, make_sampler(Jacobi(), 5), template=batch.target)
    language_model = tiny_any_order_lm(data.vocab).eval()
    with pytest.raises(UserError, match="decoding=test predicts tokens from those before them, so it cannot fill"):
        language_model.generate(batch.source[:, :0], make_sampler(Jacobi(), 5), template=batch.target)
