"""The causal decoder: visibility, and equality with and without a cache."""

import pytest
import torch

from rdm.models.causal import Cache, CausalDecoder, Continuation
from rdm.vocab import Vocab
from tests.builders import tiny_network
from tests.masks import Masks

VOCAB = Vocab(size=40)


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def decoder(request: pytest.FixtureRequest) -> CausalDecoder:
    torch.manual_seed(0)
    return CausalDecoder(tiny_network(VOCAB, pre_norm=request.param)).eval()


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(5, VOCAB.size, (rows, length), generator=torch.Generator().manual_seed(rows * 100 + length))


def test_decoder_is_causal(decoder: CausalDecoder) -> None:
    """Replacing a token changes the logits at its position and after it, and none before."""
    memory, x = decoder.encode(tokens(2, 7)), tokens(2, 6)
    base = decoder(x, memory)
    for place in range(6):
        y = x.clone()
        y[:, place] = 5 + (x[:, place] - 4) % 30
        changed = (decoder(y, memory) - base).abs().amax(-1)
        assert (changed[:, :place] == 0).all()
        assert (changed[:, place:] > 1e-4).all()


def test_cached_equals_uncached(decoder: CausalDecoder) -> None:
    """Decoding token by token or in two pieces gives the logits of one pass."""
    memory, x = decoder.encode(tokens(2, 7)), tokens(6, 8)
    whole = decoder(x, memory)
    for sizes in ([1] * 8, [3, 5]):
        cache = Cache()
        parts = [decoder(part, memory, cache=cache) for part in x.split(sizes, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)
        assert cache.length == 8


def test_attention_without_mask(decoder: CausalDecoder) -> None:
    """In training and token by token: the fastest attention kernels take no mask."""
    memory, x, cache = decoder.encode(tokens(2, 7)), tokens(2, 8), Cache()
    with Masks() as seen:
        decoder(x, memory)
        decoder(x[:, :3], memory, cache=cache)
        decoder(x[:, 3:4], memory, cache=cache)
    assert seen.seen == [None] * 6  # self- and cross-attention


def test_continuation_after_selecting_rows(decoder: CausalDecoder) -> None:
    """After beams are reordered and a source is dropped, the logits equal those without a cache."""
    source, x = tokens(3, 7), tokens(6, 4)
    write = Continuation(decoder, decoder.encode(source))
    for column in x.unbind(1):
        write(column)
    sources, rows = torch.tensor([0, 2]), torch.tensor([1, 1, 5, 4])
    write.select(sources, rows)
    new = torch.tensor([5, 6, 7, 8])
    text = torch.cat([x[rows], new[:, None]], 1)
    expected = decoder(text, decoder.encode(source[sources]))[:, -1]
    torch.testing.assert_close(write(new), expected, rtol=1e-5, atol=1e-5)


def test_selecting_all_rows_does_not_copy(decoder: CausalDecoder) -> None:
    cache, all_rows = Cache(), torch.arange(4)
    decoder(tokens(4, 3), decoder.encode(tokens(2, 7)), cache=cache)
    before = cache.key_values
    cache.select(all_rows)
    assert cache.key_values is before
    for rows in (all_rows[:3], all_rows.flip(0), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])):
        cache.key_values = before
        cache.select(rows)
        assert all(torch.equal(new[0], old[0][rows]) for new, old in zip(cache.key_values, before, strict=True))


def test_positions_and_padding(decoder: CausalDecoder) -> None:
    source, x = tokens(3, 7), tokens(3, 6)
    padding = torch.full((3, 4), VOCAB.pad)
    whole = decoder(x, decoder.encode(source))
    wide = decoder(torch.cat([x, padding], 1), decoder.encode(torch.cat([source, padding], 1)))
    torch.testing.assert_close(wide[:, :6], whole, rtol=1e-4, atol=1e-5)
    chosen = x % 3 == 0
    torch.testing.assert_close(decoder(x, decoder.encode(source), chosen), whole[chosen])
