"""Decoding: proposals, routers and the loop that turns noise into text.

What is needed to write a router of one's own and to use it is exported here:

    >>> from rdm.decoding import Commit, Linear, Sampler
    >>> str(Sampler("commit", steps=4, transition=Commit(), schedule=Linear()))
    'commit, 4 iterations'
"""

from rdm.decoding.base import Decoding
from rdm.decoding.beam import BeamSearch
from rdm.decoding.candidates import BestScore, LengthAwareScore, MinimumBayesRisk, Selection
from rdm.decoding.left_to_right import LeftToRight
from rdm.decoding.routing import Ancestral, Commit, Conditional, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas, Decoded, Sampler
from rdm.decoding.schedule import Cosine, DecodingSchedule, Linear
from rdm.decoding.transition import Outcome, Progress, Router, State, Transition, actions, top_k

__all__ = [
    "Ancestral",
    "BeamSearch",
    "BestScore",
    "Canvas",
    "Commit",
    "Conditional",
    "Cosine",
    "Decoded",
    "Decoding",
    "DecodingSchedule",
    "LeftToRight",
    "LengthAwareScore",
    "Linear",
    "MaskPredict",
    "MinimumBayesRisk",
    "Outcome",
    "PosteriorStep",
    "Progress",
    "Router",
    "Sampler",
    "Selection",
    "State",
    "Transition",
    "Unconditional",
    "actions",
    "top_k",
]
