"""Attention: visibility, precision on a CPU, and other backends."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rdm.models.layers import (
    Attend,
    attend_causally,
    attend_everywhere,
    attend_left_to_right,
    attend_where,
    attention_backend,
)

QUERY, KEY, VALUE = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(1)) < 0.5
MASK[:, :, 0] = True


def by_hand(visible: Tensor) -> Tensor:
    """Softmax over the keys that ``visible [2, N, S]`` allows."""
    scores = (QUERY @ KEY.transpose(-1, -2) / 8**0.5).masked_fill(~visible[:, None], float("-inf"))
    return scores.softmax(-1) @ VALUE


@pytest.mark.parametrize(
    ("attend", "visible"),
    [
        (attend_everywhere, torch.ones(2, 5, 5, dtype=torch.bool)),
        (attend_causally, torch.ones(2, 5, 5, dtype=torch.bool).tril()),
        (attend_left_to_right(0, 5, torch.device("cpu")), torch.ones(2, 5, 5, dtype=torch.bool).tril()),
        (attend_where(MASK), MASK),
    ],
    ids=["everywhere", "causal", "left to right", "mask"],
)
def test_visibility(attend: Attend, visible: Tensor) -> None:
    torch.testing.assert_close(attend(QUERY, KEY, VALUE), by_hand(visible))


@pytest.mark.parametrize("start", [0, 2, 4])
def test_cached_positions_are_visible(start: int) -> None:
    """New positions see all cached ones, themselves and new ones before them."""
    attend = attend_left_to_right(start, 5 - start, torch.device("cpu"))
    expected = by_hand(torch.ones(2, 5, 5, dtype=torch.bool).tril())[:, :, start:]
    torch.testing.assert_close(attend(QUERY[:, :, start:], KEY, VALUE), expected)


def test_attention_on_a_cpu_is_in_float32() -> None:
    """Also under autocast, where it receives and returns bfloat16: only its inputs are rounded."""
    query, key, value = (tensor.bfloat16() for tensor in (QUERY, KEY, VALUE))
    exact = attend_everywhere(query.float(), key.float(), value.float())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attend_everywhere(query, key, value)
    torch.testing.assert_close(mixed, exact.bfloat16(), rtol=0, atol=0)


def test_another_backend_serves_all_attention_inside_the_context() -> None:
    calls: list[dict[str, Any]] = []

    def backend(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        calls.append(options)
        return scaled_dot_product_attention(query, key, value, **options)

    attends = (attend_everywhere, attend_causally, attend_where(MASK))
    outside = [attend(QUERY, KEY, VALUE) for attend in attends]
    with attention_backend(backend):
        inside = [attend(QUERY, KEY, VALUE) for attend in attends]
    torch.testing.assert_close(inside, outside)
    assert [list(options) for options in calls] == [[], ["is_causal"], ["attn_mask"]]
    with pytest.raises(TypeError), attention_backend(backend):
        attend_everywhere(None, unknown=True)  # type: ignore[call-arg, arg-type]
    attend_everywhere(QUERY, KEY, VALUE)
    assert len(calls) == 3
