"""The network of the Levenshtein Transformer (Gu et al., 2019): one decoder with three heads."""

import torch
from torch import Tensor, nn

from rdm.cross_entropy import Logits
from rdm.models.encoder_decoder import EncoderDecoder, Memory
from rdm.models.layers import Positions, check_sizes
from rdm.models.wrapper import NetworkWrapper


class LevenshteinEditor(NetworkWrapper):
    """Decides which tokens are deleted, how many placeholders are inserted, and what they are filled with.

    Args:
        network: the Transformer; its output embedding is the head that fills placeholders.
        placeholders: the largest number of placeholders between two neighbours.

    >>> from rdm.vocab import Vocab
    >>> editor = LevenshteinEditor(EncoderDecoder(Vocab(size=9), 8, 16, 2, 1, 1, max_length=6), placeholders=4)
    >>> states = editor(torch.tensor([[2, 5, 3]]), editor.encode(torch.tensor([[2, 5, 6, 3]])))
    >>> editor.deletion(states).shape, editor.insertion(states).shape, editor.filling(states).shape
    (torch.Size([1, 3, 2]), torch.Size([1, 2, 5]), torch.Size([1, 3, 9]))
    """

    network: EncoderDecoder

    def __init__(self, network: EncoderDecoder, placeholders: int = 255) -> None:
        super().__init__(network)
        check_sizes(placeholders=placeholders)
        self.placeholders = placeholders
        self.delete = nn.Linear(network.dim, 2)
        self.insert = nn.Linear(2 * network.dim, placeholders + 1)
        network.initialise_module(self.delete)
        network.initialise_module(self.insert)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Return the states ``[R, N, D]`` that the heads read."""
        return self.network.denoise(self.network.embed(tokens), tokens, memory)

    def deletion(self, states: Tensor) -> Tensor:
        """Return logits ``[R, N, 2]``: keep (0) or delete (1)."""
        return self.delete(self.network.decoder_norm(states))

    def insertion(self, states: Tensor) -> Tensor:
        """Return logits ``[R, N - 1, placeholders + 1]`` of the number of placeholders after each token but the last.

        They are computed from ``[h_i; h_{i+1}]``.
        """
        states = self.network.decoder_norm(states)
        return self.insert(torch.cat([states[:, :-1], states[:, 1:]], -1))

    def filling(self, states: Tensor, positions: Positions | None = None) -> Logits:
        """Return logits ``[P, V]`` of the tokens at ``positions``, or ``[R, N, V]`` if None."""
        return self.network.project(states, positions)
