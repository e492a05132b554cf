"""Pretrained networks of the ``transformers`` library (extra ``pretrained``) behind the interface of our decoders.

The sizes are arguments, so that a trained run can be used without the weights it started from.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdm.describe import Described
from rdm.errors import UserError, require
from rdm.models.gaussian_prior import covariance, divergence
from rdm.models.layers import Positions, check_sizes
from rdm.models.network import BARRED
from rdm.vocab import Vocab

PADDED_ROWS = 128
"""Published embeddings may be padded with rows that no token uses, and our tokenizer adds special symbols."""


def library() -> Any:
    """Import ``transformers``, which takes seconds and is optional."""
    try:
        import transformers
    except ImportError as error:
        raise UserError("system=gpt2 and system=gpvae_t5 need transformers: pip install 'rdm[pretrained]'") from error
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@dataclass(frozen=True)
class SourceRows:
    """``B`` sources as a network reads them: ids ``[B, S]`` or states ``[B, S, D]``, and a mask ``[B, S]``."""

    values: Tensor
    mask: Tensor

    def select(self, rows: Tensor) -> "SourceRows":
        """Select rows by index; a row may be repeated."""
        return SourceRows(self.values[rows], self.mask[rows])


class PretrainedDecoder(Described, nn.Module, ABC):
    """Predicts the next token from the source and the tokens before it, as a causal decoder does."""

    output_bias: Tensor
    model: Any

    def __init__(self, vocab: Vocab, max_length: int, model: nn.Module) -> None:
        super().__init__()
        self.vocab, self.max_length, self.model = vocab, max_length, model
        self.register_buffer("output_bias", torch.zeros(vocab.size))

    def restrict(self, predictable: Tensor) -> None:
        """Exclude the ids that are false in ``predictable [V]`` from prediction."""
        self.output_bias.copy_(torch.where(predictable, 0.0, BARRED))

    def load(self, weights: str) -> None:
        """Take over the weights in a folder, or of a model of the Hugging Face hub.

        Rows of the embeddings are taken over by id, so the tokenizer must be that of the weights.
        """
        try:
            loaded = type(self.model).from_pretrained(weights)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UserError(f"system.weights: cannot read {weights}: {reason}") from error
        rows = loaded.get_input_embeddings().weight.shape[0]
        require(
            abs(rows - self.vocab.size) <= PADDED_ROWS,
            f"system.weights: {weights} has {rows} ids, the tokenizer {self.vocab.size}: use its own tokenizer, "
            "data/tokenizer=file data.tokenizer.path=<folder of the weights>",
        )
        loaded.resize_token_embeddings(self.vocab.size, mean_resizing=False)
        state, own = loaded.state_dict(), self.model.state_dict()
        wrong = next((name for name in own if name not in state or state[name].shape != own[name].shape), None)
        require(wrong is None, f"system.weights: {weights} is not a model of the size of model=: {wrong} differs")
        self.model.load_state_dict(state)

    @abstractmethod
    def encode(self, source: Tensor) -> SourceRows:
        """Prepare sources ``[B, S]``, ``<bos> text <eos>`` with padding on the right."""

    @abstractmethod
    def forward(self, tokens: Tensor, memory: SourceRows, positions: Positions) -> Tensor:
        """Return logits ``[P, V]`` of the token after each of ``tokens [B, N]`` at the ``positions``."""

    @abstractmethod
    def start(self, tokens: Tensor, memory: SourceRows, cache: Any) -> tuple[Tensor, Any]:
        """Append ``tokens [R]`` to the cached ones; return the logits ``[R, V]`` of the next, and the new cache."""

    def continuation(self, memory: SourceRows) -> "PretrainedContinuation":
        """Return the decoder with its sources and a cache, as :class:`~rdm.decoding.beam.BeamSearch` calls it."""
        return PretrainedContinuation(self, memory)


class PretrainedContinuation:
    """A decoder with its sources and the library's cache; the rows of the sources are those of the texts."""

    def __init__(self, decoder: PretrainedDecoder, memory: SourceRows) -> None:
        self.decoder, self.memory = decoder, memory
        self.cache: Any = None

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append ``tokens [R]`` and return the logits ``[R, V]`` of the next token."""
        logits, self.cache = self.decoder.start(tokens, self.memory, self.cache)
        return logits

    def select(self, sources: Tensor, rows: Tensor) -> None:
        """Keep these rows, which are sorted by source; a row may be repeated."""
        self.cache.reorder_cache(rows)
        self.memory = self.memory.select(rows)


class GPT2(PretrainedDecoder):
    """GPT-2 that reads ``source <bos> target <eos>``: ``<bos>`` separates the two.

    Sources are padded on the left, so that the target follows at once; positions are counted from the first token.

    Args:
        vocab: size and special ids.
        dim, layers, heads: width, depth, attention heads.
        max_length: maximum number of tokens of source and of target, each without special symbols.
        positions: number of position embeddings, 1024 in the published models.
        dropout: everywhere.

    >>> decoder = GPT2(Vocab(size=9), dim=8, layers=1, heads=2, max_length=6, positions=16).eval()
    >>> memory = decoder.encode(torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]))
    >>> memory.values
    tensor([[5, 6],
            [0, 7]])
    """

    def __init__(
        self,
        vocab: Vocab,
        dim: int = 768,
        layers: int = 12,
        heads: int = 12,
        max_length: int = 126,
        positions: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        check_sizes(dim=dim, layers=layers, heads=heads, max_length=max_length)
        require(dim % heads == 0, f"model.dim ({dim}) must be a multiple of model.heads ({heads})")
        needed = 2 * max_length + 2
        require(needed <= positions, f"model.positions={positions} is less than the {needed} of source and target")
        transformers = library()
        shape = {"n_embd": dim, "n_layer": layers, "n_head": heads, "n_positions": positions}
        dropouts = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        specials = {"bos_token_id": vocab.bos, "eos_token_id": vocab.eos}
        config = transformers.GPT2Config(vocab_size=vocab.size, **shape, **dropouts, **specials)
        super().__init__(vocab, max_length, transformers.GPT2LMHeadModel(config))

    def encode(self, source: Tensor) -> SourceRows:
        text = (source != self.vocab.pad) & (source != self.vocab.bos) & (source != self.vocab.eos)
        order = text.long().argsort(dim=1, stable=True)[:, 2:]  # without the columns of <bos> and <eos>
        mask = text.gather(1, order)
        return SourceRows(source.gather(1, order).masked_fill(~mask, self.vocab.pad), mask)

    def forward(self, tokens: Tensor, memory: SourceRows, positions: Positions) -> Tensor:
        ids = torch.cat([memory.values, tokens], 1)
        mask = functional.pad(memory.mask, (0, tokens.shape[1]), value=True)
        states = self.model.transformer(
            input_ids=ids, attention_mask=mask.long(), position_ids=place(mask), use_cache=False
        ).last_hidden_state
        return self.model.lm_head(states[:, memory.values.shape[1] :][positions]) + self.output_bias

    def start(self, tokens: Tensor, memory: SourceRows, cache: Any) -> tuple[Tensor, Any]:
        ids, seen = tokens[:, None], 0 if cache is None else cache.get_seq_length() - memory.mask.shape[1]
        mask = functional.pad(memory.mask, (0, seen + 1), value=True)
        if cache is None:
            ids = torch.cat([memory.values, ids], 1)
        output = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=place(mask)[:, -ids.shape[1] :],
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits[:, -1] + self.output_bias, output.past_key_values


def place(mask: Tensor) -> Tensor:
    """Return the position of every token, counted from the first real one: ``[B, N]`` for a mask ``[B, N]``.

    >>> place(torch.tensor([[False, True, True]]))
    tensor([[0, 0, 1]])
    """
    return (mask.long().cumsum(1) - 1).clamp(min=0)


class GPVAET5(PretrainedDecoder):
    """T5 whose encoder states receive a latent variable with a Gaussian-process prior (GPVAE-T5).

        q(z | h) = N(mu(h), diag(sigma^2(h))),        p(z | h) = GP(m(h), v exp(-|h_i - h_j|^2 / (2 r^2)))
        decoder input: h + W z

    Args:
        vocab: size and special ids.
        dim, hidden, layers, heads: width, width of the feed-forward layers, depth of each half, attention heads.
        max_length: maximum number of tokens of a sentence, without special symbols.
        dropout: everywhere.
        variance, length_scale: ``v`` and ``r`` of the prior.

    >>> network = GPVAET5(Vocab(size=9), dim=8, hidden=16, layers=1, heads=2, max_length=6).eval()
    >>> network.encode(torch.tensor([[2, 5, 6, 3]])).values.shape
    torch.Size([1, 4, 8])
    """

    def __init__(
        self,
        vocab: Vocab,
        dim: int = 768,
        hidden: int = 3072,
        layers: int = 12,
        heads: int = 12,
        max_length: int = 50,
        dropout: float = 0.1,
        variance: float = 512.0,
        length_scale: float = 1e-3,
    ) -> None:
        check_sizes(dim=dim, hidden=hidden, layers=layers, heads=heads, max_length=max_length)
        require(dim % heads == 0, f"model.dim ({dim}) must be a multiple of model.heads ({heads})")
        require(variance > 0 and length_scale > 0, "model.variance and model.length_scale must be above 0")
        transformers = library()
        shape = {"d_model": dim, "d_kv": dim // heads, "d_ff": hidden, "num_layers": layers, "num_heads": heads}
        specials = {
            "pad_token_id": vocab.pad,
            "eos_token_id": vocab.eos,
            "decoder_start_token_id": vocab.bos,
        }
        config = transformers.T5Config(vocab_size=vocab.size, dropout_rate=dropout, **shape, **specials)
        super().__init__(vocab, max_length, transformers.T5ForConditionalGeneration(config))
        self.variance, self.length_scale = variance, length_scale
        self.mean, self.log_variance, self.prior_mean = (nn.Linear(dim, dim) for _ in range(3))
        self.expand = nn.Linear(dim, dim, bias=False)
        # At the start the latent variable is nearly the prior's mean and changes nothing in the pretrained network.
        nn.init.zeros_(self.expand.weight)

    def _states(self, source: Tensor) -> tuple[Tensor, Tensor]:
        mask = source != self.vocab.pad
        return self.model.encoder(input_ids=source, attention_mask=mask.long()).last_hidden_state, mask

    def encode(self, source: Tensor) -> SourceRows:
        """Encode sources with the posterior mean of the latent variable."""
        states, mask = self._states(source)
        return SourceRows(states + self.expand(self.mean(states)), mask)

    def sample(self, source: Tensor, generator: torch.Generator | None = None) -> tuple[SourceRows, Tensor]:
        """Encode sources with a sample of the latent variable; return it and ``KL(q || p)`` ``[B]`` in nats."""
        states, mask = self._states(source)
        mean, log_variance = self.mean(states), self.log_variance(states)
        noise = torch.randn(mean.shape, device=mean.device, generator=generator).to(mean.dtype)
        latent = mean + (log_variance / 2).exp() * noise
        kernel = covariance(states, mask, self.variance, self.length_scale)
        nats = divergence(mean, log_variance, self.prior_mean(states), kernel, mask)
        return SourceRows(states + self.expand(latent), mask), nats

    def forward(self, tokens: Tensor, memory: SourceRows, positions: Positions) -> Tensor:
        output = self.model(
            encoder_outputs=(memory.values,),
            attention_mask=memory.mask.long(),
            decoder_input_ids=tokens,
            use_cache=False,
        )
        return output.logits[positions] + self.output_bias

    def start(self, tokens: Tensor, memory: SourceRows, cache: Any) -> tuple[Tensor, Any]:
        output = self.model(
            encoder_outputs=(memory.values,),
            attention_mask=memory.mask.long(),
            decoder_input_ids=tokens[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits[:, -1] + self.output_bias, output.past_key_values
