"""Means of the terms of a loss."""

import pytest
import torch

from rdm.terms import Term, mean_terms

COUNTS = {"tokens": torch.tensor(4), "sentences": torch.tensor(2)}


def test_each_term_is_divided_by_its_own_count() -> None:
    terms = [Term("diffusion", torch.tensor(8.0), "tokens"), Term("length", torch.tensor(3.0), "sentences")]
    assert {name: mean.item() for name, mean in mean_terms(terms, COUNTS).items()} == {"diffusion": 2.0, "length": 1.5}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([Term("a", torch.tensor(1.0), "tokens")] * 2, "need different names, got a, a"),
        ([Term("a", torch.tensor(1.0), "words")], "System.counts does not declare words; it has tokens, sentences"),
    ],
)
def test_ambiguous_terms_are_an_error(terms: list[Term], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_terms(terms, COUNTS)
