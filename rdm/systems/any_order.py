"""Absorbing diffusion with a causal network, trained on every token of a text in one pass."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from rdm.cross_entropy import compute_logits, smoothed_cross_entropy
from rdm.data.batch import Batch
from rdm.decoding.base import Decoding
from rdm.decoding.transition import asks_again
from rdm.diffusion.copies import Single
from rdm.diffusion.objective import ReweightedCrossEntropy
from rdm.diffusion.orders import DenoisingOrder
from rdm.diffusion.process import DiffusionProcess
from rdm.diffusion.reweighting import Original
from rdm.errors import require
from rdm.models.any_order import AnyOrderDenoiser, ReadsInOrder
from rdm.models.encoder_decoder import Memory
from rdm.systems.base import Likelihood
from rdm.systems.denoising import DenoisingSystem
from rdm.systems.diffusion import DiffusionSystem
from rdm.systems.lengths import length_nats
from rdm.terms import Term
from rdm.vocab import Vocab


class AnyOrder(DenoisingSystem):
    """What the systems of any order share: the loss along one order, its mean over orders, and which decodings fit.

        loss = E_order sum_i - log p(x_order(i) | x_order(1) .. x_order(i - 1))

    With uniform orders this is the bound of absorbing diffusion in continuous time. Decoding is that of any other
    diffusion over masks, except that denoised tokens can be predicted again only from those before them.

    Args:
        vocab: size and special ids.
        process: the forward process, by which samplers count steps; its noise must be masks.
        denoiser: the network.
        order: draws the orders of training and likelihood.
        label_smoothing: share of the target mass spread over the ids that can be predicted.
        parts: further arguments of the class that is combined with this one.
    """

    denoiser: ReadsInOrder  # type: ignore[assignment]

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        denoiser: ReadsInOrder,
        order: DenoisingOrder,
        label_smoothing: float,
        **parts: Any,
    ) -> None:
        objective = ReweightedCrossEntropy(Original(), label_smoothing)
        parts |= {"denoiser": denoiser, "copies": Single(), "objective": objective}
        super().__init__(vocab=vocab, process=process, **parts)
        self.order, self.label_smoothing = order, label_smoothing

    def text_terms(
        self,
        text: Tensor,
        free: Tensor,
        memory: Memory | None,
        generator: torch.Generator | None,
        known: Tensor | None = None,
    ) -> list[Term]:
        """Return the loss of the ``free`` tokens of ``text [B, N]`` along one order, each predicted from all before it.

        If tokens are denoised at the same time, those that are not the first of them are also predicted from what comes
        before all of them: the term ``ahead``. Rows that are not ``known [B]`` (bool) are read from left to right
        without knowing their length, and their ``<eos>`` must be free: the term ``unknown_length``.
        """
        order, key = self.draw_order(text, free, generator, known)
        places, ahead = self.places(order, free), None
        if self.order.ahead_factor is not None:
            place = torch.arange(order.shape[1], device=order.device)
            first = torch.searchsorted(key, key)  # place of the first token that is denoised at the same time
            rows, j = (free.gather(1, order) & (first < place)).nonzero(as_tuple=True)
            ahead = (rows, first[rows, j] - 1, j) if len(rows) else None
        # The only device synchronisation of the step, except for tokens that are denoised at the same time.
        positions = places.nonzero(as_tuple=True)
        logits = self.denoiser.in_order(text, order, memory, positions, ahead, known)
        gold = text[positions[0], order[positions[0], positions[1] + 1]]
        if ahead is not None:
            gold = torch.cat([gold, text[ahead[0], order[ahead[0], ahead[2]]]])
        output_ids = self.denoiser.network.output_bias == 0
        losses = smoothed_cross_entropy(logits, gold, output_ids, self.label_smoothing)
        following, others = losses.split([len(positions[0]), len(losses) - len(positions[0])])
        unit = self.process.noise.unit
        if known is None:
            terms = [Term("diffusion", following.sum(), unit)]
        else:
            knows = known[positions[0]]  # `where` and no product, which autocast would round
            terms = [Term("diffusion", following.where(knows, 0).sum(), unit)]
            terms.append(Term("unknown_length", following.where(~knows, 0).sum(), unit))
        if self.order.ahead_factor is not None:
            terms.append(Term("ahead", others.sum(), unit, self.order.ahead_factor))
        return terms

    def text_nats(
        self, text: Tensor, free: Tensor, memory: Memory | None, draws: int | None, generator: torch.Generator | None
    ) -> Tensor:
        """Return the mean ``[B]`` over ``draws`` orders of ``-log p(free tokens | others)``, in float64.

        None draws as many orders as the process has steps. If tokens are denoised at the same time, it is that of
        decoding one after the other, the same for each draw, so one is enough.
        """
        count = 1 if self.one_by_one else draws or self.process.num_steps
        orders = (self.draw_order(text, free, generator)[0] for _ in range(count))
        return torch.stack([self.nats_in_order(text, order, free, memory) for order in orders]).mean(0)

    def nats_in_order(
        self, text: Tensor, order: Tensor, free: Tensor, memory: Memory | None, known: Tensor | None = None
    ) -> Tensor:
        """Return ``-log p`` ``[B]`` of the ``free`` tokens of ``text [B, N]`` along an order, in float64.

        Rows that are not ``known [B]`` do not know the length of their text, so ``<eos>`` may be among the tokens.
        """
        places = self.places(order, free)
        logits = compute_logits(self.denoiser.in_order(text, order, memory, places, known=known)).double()
        if known is None:
            logits = logits.masked_fill(~self.predictable, float("-inf"))
        rows, columns = places.nonzero(as_tuple=True)
        losses = functional.cross_entropy(logits, text[rows, order[rows, columns + 1]], reduction="none")
        return losses.new_zeros(len(text)).index_add(0, rows, losses)

    @property
    def predictable(self) -> Tensor:
        """The ids ``[V]`` (bool) that can be in a text."""
        return self.denoiser.network.output_bias == 0

    @property
    def one_by_one(self) -> bool:
        """Whether the likelihood is that of one order, in which tokens that are denoised together follow each other."""
        return self.order.ahead_factor is not None

    def likelihood_kind(self) -> Literal["exact", "bound"]:
        return "exact" if self.one_by_one else "bound"

    def draw_order(
        self, text: Tensor, free: Tensor, generator: torch.Generator | None = None, known: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return an order ``[B, N]`` of the positions of ``text [B, N]``, and their sorted numbers.

        What is given comes first, from left to right; what is not read comes last. The order of rows that are not
        ``known [B]`` is from left to right.
        """
        key = self.order(free, generator).double().masked_fill(~free, -1.0)
        if known is not None:
            key = torch.where(known[:, None], key, torch.arange(text.shape[1], device=text.device))
        ordered = key.masked_fill(self.denoiser.unread(text), float("inf")).sort(dim=1, stable=True)
        return ordered.indices, ordered.values

    def places(self, order: Tensor, free: Tensor) -> Tensor:
        """Return where in ``order [B, N]`` a token is predicted next."""
        places = free.gather(1, order).roll(-1, 1)
        places[:, -1] = False
        return places

    def check(self, decoding: Decoding) -> None:
        super().check(decoding)
        transition = self.as_sampler(decoding).transition
        masks_only = transition.left_to_right or not asks_again(transition, self.process)
        message = "this system predicts masked tokens only, but the decoding asks for others; try decoding=rdm_commit"
        require(masks_only, message)


class AnyOrderSystem(AnyOrder, DiffusionSystem):
    """Denoises tokens in any order, with a network that has learned each order as an autoregressive model.

    ``<bos>`` and ``<unk>`` are read first, ``<eos>`` is not read. So an order from left to right reads the text as an
    autoregressive network does.

    Args:
        vocab, process, denoiser, order, label_smoothing: see :class:`AnyOrder`; the noise must spare <bos> and <eos>.
        length_factor, source_dropout: see :class:`~rdm.systems.diffusion.DiffusionSystem`.
        unknown_length: share of the rows that are learned as by an autoregressive model, which does not know the length
            and predicts ``<eos>``. Above 0 candidates of different lengths are compared by this likelihood
            (``rescore=self``): a text that was fitted into a wrong length may be probable given that length.
    """

    denoiser: AnyOrderDenoiser  # type: ignore[assignment]

    def __init__(
        self,
        vocab: Vocab,
        process: DiffusionProcess,
        denoiser: AnyOrderDenoiser,
        order: DenoisingOrder,
        length_factor: float = 0.01,
        source_dropout: float = 0.0,
        label_smoothing: float = 0.1,
        unknown_length: float = 0.0,
    ) -> None:
        super().__init__(
            vocab,
            process,
            denoiser,
            order,
            label_smoothing,
            length_factor=length_factor,
            source_dropout=source_dropout,
        )
        require(0 <= unknown_length < 1, f"system.unknown_length must lie in [0, 1), got {unknown_length}")
        self.unknown_length = unknown_length
        self.rescores = self.one_by_one or unknown_length > 0  # see `text_nats` and `rescoring_likelihood`
        masks_only = self.objective.is_bound(process)  # noise never looks like text
        spared = not bool(process.noise.learnable[[vocab.bos, vocab.eos]].any())
        require(masks_only and spared, "system=any_order needs masks as noise, with noise_specials=false")
        if unknown_length > 0:
            denoiser.restrict(process.noise.learnable | ~vocab.select(without=(vocab.eos,)))

    @property
    def predictable(self) -> Tensor:
        return self.process.noise.learnable

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> list[Term]:
        memory = self.denoiser.encode(self.drop_sources(batch.source, generator))
        text, free, known = batch.target, self.process.learnable(batch.target), None
        if self.unknown_length > 0:
            known = torch.rand(len(text), device=text.device, generator=generator) >= self.unknown_length
            free = free | ((text == self.vocab.eos) & ~known[:, None])
        length = self._length_nats(batch, memory).sum()
        terms = self.text_terms(text, free, memory, generator, known)
        return [*terms, Term("length", length, "sentences", self.length_factor)]

    @torch.inference_mode()
    def rescoring_likelihood(self, batch: Batch) -> Likelihood | None:
        if self.unknown_length == 0:
            return super().rescoring_likelihood(batch)
        text, memory = batch.target, self.denoiser.encode(batch.source)
        free = self.process.learnable(text) | (text == self.vocab.eos)
        order = torch.arange(text.shape[1], device=text.device).expand_as(text)
        unknown = torch.zeros(len(text), dtype=torch.bool, device=text.device)
        nats = self.nats_in_order(text, order, free, memory, known=unknown)
        return Likelihood(nats, (batch.target[:, 1:] != self.vocab.pad).sum(1), "exact")

    @torch.inference_mode()
    def likelihood(
        self, batch: Batch, draws: int | None = None, generator: torch.Generator | None = None
    ) -> Likelihood:
        """Return ``-log p(length | source) - log p(text | length, source)``, a bound on it for random orders."""
        memory, free = self.denoiser.encode(batch.source), self.process.learnable(batch.target)
        text = self.text_nats(batch.target, free, memory, draws, generator)
        return Likelihood(text + self._length_nats(batch, memory), free.sum(1) + 1, self.likelihood_kind())

    def _length_nats(self, batch: Batch, memory: Memory) -> Tensor:
        return length_nats(self.denoiser.length_logits(memory).float(), batch.target, self.vocab)
