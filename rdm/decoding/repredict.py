"""The decoding of SMART and CMLMC: Mask-Predict that predicts every position again in each iteration."""

import torch
from torch import Tensor

from rdm.decoding.routing import TopK
from rdm.decoding.transition import Action, State, top_k


class RepredictAll(TopK):
    """Takes the new proposal at the ``k`` positions of highest score, denoised before or not; the others are noise.

    Mask-Predict keeps a denoised token and its score until it is masked; here both are replaced in every iteration, so
    that a model trained to correct its predictions can do so.

    >>> RepredictAll().describe()
    {'class': 'RepredictAll', 'gumbel_scale': 0.0, 'sent_back_interpolates': False, 'score': None}
    """

    def route(self, state: State) -> Tensor:
        chosen = top_k(self.scores(state), state.count, state.free)
        return torch.where(chosen, Action.PROPOSE, Action.NOISE)
