"""The Llama network: layers against formulas, visibility, cache, checkpointing, sizes."""

from itertools import repeat

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rdm.errors import UserError
from rdm.models.denoiser import OpenEndedDenoiser
from rdm.models.layers import Attend, TimeEmbedding, attend_causally, attend_everywhere
from rdm.models.llama import Llama, LlamaBlock, Reader, Rotary, SwiGLU, rms_norm
from rdm.vocab import Vocab
from tests.configs import config
from tests.language_models import tiny_llama
from tests.masks import Masks

VOCAB = Vocab(size=40)


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(5, VOCAB.size, (rows, length), generator=torch.Generator().manual_seed(rows * 100 + length))


def logits(network: Llama, x: Tensor) -> Tensor:
    return network.project(network(network.tokens(x), repeat(attend_causally)))


@pytest.mark.parametrize("attend", [attend_everywhere, attend_causally])
def test_attention_without_mask(attend: Attend) -> None:
    """Nothing is padded, so the flash kernel can be used; its gradients equal those of the plain formula."""
    network, x = tiny_llama(VOCAB), tokens(2, 16)
    results = []
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        network.zero_grad()
        with Masks() as masks, sdpa_kernel(kernel):
            network(network.tokens(x), repeat(attend)).square().sum().backward()
        assert masks.seen == [None, None]  # one per layer
        results.append([parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None])
    for flash, math in zip(*results, strict=True):
        torch.testing.assert_close(flash, math, rtol=1e-4, atol=1e-4)


def test_rms_norm_by_formula() -> None:
    torch.manual_seed(0)
    layer, x = rms_norm(6), torch.randn(3, 6) * 5
    layer.weight.data.uniform_(0.5, 2)
    mean_square = sum(x[:, i] ** 2 for i in range(6)) / 6
    torch.testing.assert_close(layer(x), layer.weight * x / (mean_square + 1e-6).sqrt()[:, None])
    assert layer(torch.zeros(1, 6)).abs().max() == 0


def test_swiglu_by_formula() -> None:
    torch.manual_seed(0)
    layer, x = SwiGLU(4, 3), torch.randn(2, 4)
    gate, value = layer.gate_in.weight[:3] @ x.T, layer.gate_in.weight[3:] @ x.T
    expected = layer.out.weight @ (gate / (1 + (-gate).exp()) * value)
    torch.testing.assert_close(layer(x), expected.T)


def test_rotary_is_a_rotation_in_the_complex_plane() -> None:
    """Coordinates ``i`` and ``i + 4`` are one complex number, multiplied by ``exp(i n base^(-2 i / 8))``."""
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    rotated = Rotary(8, 20)(x, positions=7)
    for n in range(5):
        for i in range(4):
            expected = torch.complex(x[:, n, i], x[:, n, i + 4]) * torch.exp(
                torch.tensor(1j * (7 + n) * 10_000 ** (-2 * i / 8))
            )
            torch.testing.assert_close(torch.complex(rotated[:, n, i], rotated[:, n, i + 4]), expected)


def test_rotary_scores_depend_only_on_the_distance() -> None:
    query, key = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
    rotary = Rotary(8, 300)

    def score(m: int, n: int) -> Tensor:
        return (rotary(query, positions=m) * rotary(key, positions=n)).sum()

    for distance in (-20, -1, 0, 1, 3, 100):
        there = score(30 + distance, 30)
        for start in (31, 57, 150):
            torch.testing.assert_close(score(start + distance, start), there, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(score(5, 5), (query * key).sum())
    assert (score(31, 30) - score(30, 31)).abs() > 0.1, "left and right differ"
    assert (score(33, 30) - score(30, 30)).abs() > 0.1


def test_block_by_formula() -> None:
    """Pre-norm, attention head by head, feed-forward; against a loop over heads and positions."""
    torch.manual_seed(0)
    block, rotary, x = LlamaBlock(8, 12, heads=2), Rotary(4, 10), torch.randn(1, 5, 8)
    y = block.attention_norm(x)[0]
    q, k, v = (y @ w.T for w in block.attention.query_key_value.weight.chunk(3))
    gathered = torch.zeros(5, 8)
    for head in (slice(0, 4), slice(4, 8)):
        rotated_q, rotated_k = rotary(q[:, head]), rotary(k[:, head])
        for n in range(5):
            weights = torch.stack([rotated_q[n] @ rotated_k[m] / 2 for m in range(5)]).softmax(0)
            gathered[n, head] = weights @ v[:, head]
    x1 = x + gathered @ block.attention.out.weight.T
    expected = x1 + block.feed_forward(block.feed_forward_norm(x1))
    torch.testing.assert_close(block(x, rotary, rotary, attend_everywhere), expected)


def test_causal_attention_sees_no_later_token() -> None:
    """Changing a token changes the logits there and after it, and none before it."""
    network, x = tiny_llama(VOCAB).eval(), tokens(1, 9)
    before = logits(network, x)
    for position in range(9):
        y = x.clone()
        y[0, position] = 5 + (x[0, position] - 4) % 30
        difference = (logits(network, y) - before).abs().amax(-1)[0]
        assert (difference[:position] == 0).all()
        assert (difference[position:] > 1e-4).all()


@torch.no_grad()
def test_cached_equals_uncached() -> None:
    """Reading in pieces of any size gives the logits of one pass."""
    network, x = tiny_llama(VOCAB).eval(), tokens(4, 12)
    whole = logits(network, x)
    for pieces in ([1] * 12, [5, *[1] * 7], [3, 4, 5], [12]):
        reader, end = Reader(network, rows=4, positions=12), 0
        for piece in pieces:
            answer = reader(x[:, end : end + piece])
            end += piece
            torch.testing.assert_close(answer, whole[:, end - 1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_reader_keeps_selected_rows() -> None:
    network, x = tiny_llama(VOCAB).eval(), tokens(4, 8)
    reader = Reader(network, rows=4, positions=8)
    reader(x[:, :5])
    reader.keep(torch.tensor([True, False, False, True]))
    rest = torch.tensor([0, 3])
    for n in range(5, 8):
        answer = reader(x[rest, n : n + 1])
        torch.testing.assert_close(answer, logits(network, x[rest, : n + 1])[:, -1], rtol=1e-5, atol=1e-5)


def test_checkpointing_gives_the_same_gradients() -> None:
    gradients, calls = {}, {}
    for checkpointed in (False, True):
        network = tiny_llama(VOCAB, checkpoint_gradients=checkpointed)
        count = []
        network.blocks[0].register_forward_pre_hook(lambda *_, count=count: count.append(1))
        logits(network, tokens(3, 7)).logsumexp(-1).sum().backward()
        gradients[checkpointed] = {name: p.grad.clone() for name, p in network.named_parameters()}
        calls[checkpointed] = len(count)
    assert calls == {False: 1, True: 2}, "each block is recomputed in the backward pass"
    assert all(gradient.abs().max() > 0 for gradient in gradients[False].values())
    for name, gradient in gradients[False].items():
        torch.testing.assert_close(gradients[True][name], gradient, msg=name)


def test_mixed_precision() -> None:
    """Queries and keys are rotated in float32 and rerotated in bfloat16, with and without a cache."""
    network, x = tiny_llama(VOCAB).eval(), tokens(2, 6)
    exact = logits(network, x)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        half = logits(network, x)
        read = Reader(network, rows=2, positions=6)(x)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.1, atol=0.2)
    torch.testing.assert_close(read.float(), exact[:, -1], rtol=0.1, atol=0.2)


def test_too_long_text_and_invalid_sizes_raise() -> None:
    network = tiny_llama(VOCAB, max_length=16)
    with pytest.raises(UserError, match=r"the text has 17 tokens, more than model\.max_length=16"):
        logits(network, tokens(1, 17))
    with pytest.raises(UserError, match=r"model\.dim \(30\) must be a multiple of twice model\.heads \(4\)"):
        Llama(VOCAB, dim=30, heads=4)


@pytest.mark.parametrize(
    ("name", "vocabulary", "least", "most"),
    [
        ("llama_tiny", 2_000, 1e6, 3e6),
        ("llama_tiny", 8_000, 1e6, 3e6),
        ("llama_small", 50_257, 50e6, 100e6),
        ("llama_430m", 50_257, 0.95 * 430e6, 1.05 * 430e6),
    ],
)
def test_parameter_counts(name: str, vocabulary: int, least: float, most: float) -> None:
    """Parameter counts with and without the time embedding, on the meta device."""
    composed = config(f"model={name}")
    composed.vocab.size = vocabulary
    with torch.device("meta"):
        network: Llama = instantiate(composed.model)
        denoiser = OpenEndedDenoiser(network, TimeEmbedding(network.dim))
    assert all(tensor.is_meta for tensor in (*denoiser.parameters(), *denoiser.buffers()))
    sizes = [sum(parameter.numel() for parameter in module.parameters()) for module in (network, denoiser)]
    assert least < sizes[0] < sizes[1] < most
    assert (network.max_length, sizes[1] - sizes[0]) == (256, 2 * network.dim * (network.dim + 1))


def test_checkpointing_is_a_config_option() -> None:
    composed = config("model=llama_tiny", "model.checkpoint_gradients=true")
    assert instantiate(composed.model).checkpoint_gradients
