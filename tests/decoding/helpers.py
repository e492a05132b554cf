"""Helpers of the decoding tests: a vocabulary of four ordinary ids, denoisers, states and a chi-square test."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from rdm.decoding.adaptive import KLASS, Editing, EntropyBound, Factor, RenoisingEntropyBound, Threshold
from rdm.decoding.correcting import LeaveOneOut, Psi
from rdm.decoding.jacobi import Jacobi
from rdm.decoding.proposal import Proposal
from rdm.decoding.remasking import ReMDMCap, ReMDMConf, ReMDMLoop, ReMDMRescale
from rdm.decoding.routing import P2, Ancestral, Commit, Conditional, MaskPredict, PosteriorStep, Unconditional
from rdm.decoding.sampler import Canvas, Decoded, Sampler
from rdm.decoding.schedule import Cosine, CosinePaper, DecodingSchedule, Linear
from rdm.decoding.scores import Margin, NegativeEntropy
from rdm.decoding.transition import Action, Outcome, Router, State, Transition
from rdm.decoding.transition_times import DNDM, DNDMTopK
from rdm.diffusion import schedule as alphas
from rdm.diffusion.noise import Absorbing, Mixture, Noise, Uniform, Unigram
from rdm.diffusion.process import DiffusionProcess
from rdm.vocab import Vocab

VOCAB = Vocab(size=6, pad=0, mask=1, bos=0, eos=0, unk=0)
PAD, MASK = VOCAB.pad, VOCAB.mask
BARRED = -3e4  # logit of ids that must not be predicted


def _unigram() -> Noise:
    noise = Unigram(VOCAB)
    noise.fit(lambda: torch.tensor([0, 0, 1, 10, 100, 1000]))
    return noise


NOISES: dict[str, Callable[[], Noise]] = {
    "absorbing": lambda: Absorbing(VOCAB),
    "uniform": lambda: Uniform(VOCAB),
    "mixture": lambda: Mixture(VOCAB, mask_share=0.4),
    "unigram": _unigram,
}
SCHEDULES: dict[str, DecodingSchedule] = {"linear": Linear(), "cosine": Cosine(), "cosine_paper": CosinePaper()}
ROUTERS: dict[str, Callable[..., Router]] = {  # with options that make tokens go back and forth in short tests
    "uncond": Unconditional,
    "cond": Conditional,
    "commit": Commit,
    "mask_predict": MaskPredict,
    "p2": partial(P2, eta=1.5),
    "uncond_margin": partial(Unconditional, score=Margin()),
    "mask_predict_entropy": partial(MaskPredict, score=NegativeEntropy()),
    "ancestral": Ancestral,
    "remdm_cap": lambda: ReMDMCap(eta=0.3),
    "remdm_rescale": lambda: ReMDMRescale(eta=0.6),
    "remdm_conf": ReMDMConf,
    "remdm_loop": lambda: ReMDMLoop(eta=0.3, alpha_on=0.7),
    "psi": lambda: Psi(eta=0.3),
    "dndm": DNDM,
    "dndm_beta": lambda: DNDM(a=3, b=3),
    "dndm_k": DNDMTopK,
    "threshold": lambda: Threshold(0.95),
    "factor": lambda: Factor(0.5),
    "entropy_bound": lambda: EntropyBound(0.5),
    "klass": lambda: KLASS(0.5, max_divergence=0.3, history=1),
    "editing": lambda: Editing(0.95, edit_threshold=0.6),
    "jacobi": lambda: Jacobi(ahead=1),
}
TEXT_NOISE_ROUTERS: dict[str, Callable[..., Router]] = {  # refused for mask noise
    "leave_one_out": lambda: LeaveOneOut(corrected=0.3),
    "entropy_bound_renoise": lambda: RenoisingEntropyBound(0.5),
}
FEWER_ITERATIONS = [  # may need fewer than decoding.steps
    *["dndm", "dndm_beta", "dndm_k", "threshold", "factor", "entropy_bound", "klass", "editing"],
    "entropy_bound_renoise",
    "jacobi",
]
TOP_K = ["uncond", "cond", "commit", "mask_predict", "p2"]  # ranked by confidence, with the option gumbel_scale
DETERMINISTIC = [
    *TOP_K,
    "uncond_margin",
    "mask_predict_entropy",
    "threshold",
    "factor",
    "entropy_bound",
    "klass",
    "editing",
    "jacobi",
]
"""Routers that draw no random numbers under mask noise with argmax proposals."""
REPLACE = ["psi", "editing", "jacobi", *TEXT_NOISE_ROUTERS]  # may replace a denoised token
ANY_NUMBER_OF_STEPS = ["remdm_cap", "remdm_rescale", "remdm_conf", "remdm_loop", "p2", "psi", "leave_one_out", "jacobi"]
TRANSITIONS: dict[str, Callable[..., Transition]] = {**ROUTERS, "posterior": PosteriorStep}
CASES = [
    *((name, noise) for name in ROUTERS for noise in NOISES),
    *((name, noise) for name in TEXT_NOISE_ROUTERS for noise in NOISES if noise != "absorbing"),
]
"""Every router with every noise it accepts."""
ALL_ROUTERS = {**ROUTERS, **TEXT_NOISE_ROUTERS}


def make_process(noise: str | Noise, steps: int = 4, schedule: alphas.Schedule | None = None) -> DiffusionProcess:
    """Build a process; by default with linear alphas."""
    return DiffusionProcess(schedule or alphas.Linear(steps), NOISES[noise]() if isinstance(noise, str) else noise)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_canvas(lengths: list[int], prefix: int = 0) -> Canvas:
    """Build rows of ``prefix`` pinned words (different in every row), free positions and pinned padding."""
    columns = torch.arange(max(lengths) + prefix).expand(len(lengths), -1)
    end = torch.tensor(lengths)[:, None] + prefix
    words = 2 + torch.arange(len(lengths))[:, None] // 4**columns % 4
    tokens = torch.where(columns < prefix, words, torch.where(columns < end, MASK, PAD))
    return Canvas(tokens, pinned=(columns < prefix) | (columns >= end))


def make_sampler(
    transition: Transition, steps: int, schedule: DecodingSchedule | None = None, **options: Any
) -> Sampler:
    return Sampler("test", steps, transition, schedule or Linear(), **options)


class Recorder:
    """An observer that stores every state and outcome."""

    def __init__(self) -> None:
        self.seen: list[tuple[State, Outcome]] = []

    def __call__(self, state: State, outcome: Outcome) -> None:
        self.seen.append((state, outcome))

    def __iter__(self) -> Iterator[tuple[State, Outcome]]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)


def decode(
    transition: Transition,
    process: DiffusionProcess,
    denoise: Callable[[Tensor, Tensor, Tensor], Tensor],
    canvas: Canvas,
    steps: int,
    seed: int = 0,
    schedule: DecodingSchedule | None = None,
    scores: "FixedScores | None" = None,
    **options: Any,
) -> tuple[Decoded, Recorder]:
    """Run a sampler and record all iterations; ``scores`` replaces the proposal."""
    sampler, recorder = make_sampler(transition, steps, schedule, **options), Recorder()
    if scores is not None:
        sampler.proposal = scores
    return sampler.run(process, denoise, canvas, seeded(seed), recorder), recorder


class TableDenoiser:
    """Probabilities from a table ``[T + 1, V (token 1), ..., V (token N), N, V]``; stores the steps of all calls."""

    def __init__(self, table: np.ndarray) -> None:
        self.logits = torch.from_numpy(table).log().clamp(min=BARRED).float()
        self.steps: list[int] = []

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        assert (t == t[0]).all()
        self.steps.append(int(t[0]))
        return self.logits[(t, *tokens.unbind(1))][positions]


def random_table(steps: int, length: int, seed: int) -> np.ndarray:
    """Build a table for :class:`TableDenoiser` of peaked distributions over the ordinary ids 2..5."""
    table = np.zeros((steps + 1, *[VOCAB.size] * length, length, VOCAB.size))
    table[..., 2:] = np.random.default_rng(seed).dirichlet([0.7] * 4, size=table.shape[:-1]) * 0.9 + 0.025
    return table


class ContextDenoiser:
    """A denoiser whose logits depend on step, position, current token and context; stores the steps of all calls."""

    def __init__(self, process: DiffusionProcess, length: int, seed: int = 0, sharpness: float = 1.5) -> None:
        generator, size = seeded(seed), len(process.noise.learnable)
        self.by_place = torch.randn(process.num_steps + 1, length, size, generator=generator)
        self.by_token, self.by_context = torch.randn(2, size, size, generator=generator)
        self.allowed, self.sharpness = process.noise.learnable, sharpness
        self.steps: list[int] = []

    def __call__(self, tokens: Tensor, t: Tensor, positions: Tensor) -> Tensor:
        assert (t == t[0]).all()
        self.steps.append(int(t[0]))
        real = (tokens != PAD)[..., None]
        context = (self.by_context[tokens] * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
        place = self.by_place[t][:, : tokens.shape[1]]
        logits = self.sharpness * (place + self.by_token[tokens] + 2 * context)
        return logits.masked_fill(~self.allowed, BARRED)[positions]


class FixedActions(Router):
    """Returns fixed actions."""

    def __init__(self, script: Tensor | Action, **options: bool) -> None:
        super().__init__(**options)
        self.script = script

    def route(self, state: State) -> Tensor:
        return torch.full_like(state.tokens, self.script) if isinstance(self.script, Action) else self.script


class FixedScores(Proposal):
    """A proposal with the scores replaced by ``values``, cyclically."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = torch.tensor(values)

    def __call__(
        self, logits: Tensor, progress: float = 0.0, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        tokens, scores = super().__call__(logits, progress, generator)
        return tokens, self.values[torch.arange(len(scores)) % len(self.values)]


def make_state(tokens: list[list[int]] | Tensor, noise: str | Noise = "absorbing", **values: Any) -> State:
    """Build a state at ``t = 3`` of four with ``s = 2``; by default every position is free and noisy."""
    tokens = torch.as_tensor(tokens)
    free = torch.as_tensor(values.pop("free", torch.ones_like(tokens, dtype=torch.bool)))
    fields: dict[str, Any] = {
        "process": make_process(noise),
        "iteration": 2,
        "iterations": 4,
        "t": 3,
        "s": 2,
        "denoised": torch.zeros_like(free),
        "stored": torch.zeros(tokens.shape),
        "proposal": torch.full_like(tokens, 2),
        "scores": torch.zeros(tokens.shape),
        "active": free,
        "logits": torch.zeros(int(free.sum()), VOCAB.size),
        "sample": lambda logits: logits.argmax(-1),
        "count": torch.ones_like(tokens[:, 0]),
        "noise_rate": 0.5,
        "rows": torch.arange(len(tokens)),
        "generator": seeded(),
        **values,
    }
    unconverted = {"process", "generator", "logits", "sample"}
    for name, value in fields.items():
        if isinstance(value, list) and name not in unconverted:
            fields[name] = torch.tensor(value)
    return State(tokens=tokens, free=free, **fields)


def p_value(index: Tensor, probs: np.ndarray) -> float:
    """Return the chi-square p-value of observed cells against ``probs``; 0 if an impossible cell is observed."""
    probs = probs.ravel()
    observed = np.bincount(index.flatten().numpy(), minlength=probs.size)
    possible = probs > 1e-9
    if observed[~possible].any():
        return 0.0
    if possible.sum() == 1:
        return 1.0
    expected = probs[possible] / probs.sum() * observed.sum()
    assert expected.min() >= 5, "too few draws for a chi-square test"
    return float(stats.chisquare(observed[possible], expected).pvalue)
