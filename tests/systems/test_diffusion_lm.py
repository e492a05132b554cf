"""Diffusion over open-ended text: a prefix is never changed, and continuations are truncated."""

import math
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rdm.decoding.left_to_right import LeftToRight
from rdm.decoding.routing import Ancestral, Commit, Unconditional
from rdm.decoding.sampler import Decoded
from rdm.decoding.transition import Transition
from rdm.diffusion.copies import Conditioned, NoisedCopies, SameStep, Single, TwoSteps
from rdm.diffusion.noised import NoisedBatch
from rdm.errors import UserError
from rdm.systems.base import System
from rdm.systems.continuation import truncate
from rdm.systems.diffusion_lm import DiffusionLanguageModel
from rdm.training.module import TrainingModule
from rdm.training.optim import InverseSqrt, Optimization
from rdm.vocab import Vocab
from tests.builders import RECIPES, STEPS, FixedCopies, overfit, sampler
from tests.decoding.helpers import FEWER_ITERATIONS, TRANSITIONS, Recorder
from tests.language_models import one_canvas, packed, tiny_ar_lm, tiny_lm, window_batch

VOCAB = Vocab(size=30)
ALL_COPIES: list[NoisedCopies] = [Single(), Conditioned(), SameStep(), TwoSteps()]


def windows(rows: int, length: int = 16) -> Tensor:
    """Packed text: ordinary ids, ``<unk>`` and some ``<eos>``."""
    generator = torch.Generator().manual_seed(rows)
    text = torch.randint(4, VOCAB.size, (rows, length), generator=generator)
    return torch.where(torch.rand(text.shape, generator=generator) < 0.1, VOCAB.eos, text)


def seen_in_training(system: DiffusionLanguageModel, target: Tensor, prefix: int, seed: int = 0) -> Tensor:
    """Return the input of the denoiser during training: ``[B * copies, N]``."""
    seen: list[Tensor] = []
    hook = system.denoiser.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    system.loss(window_batch(target, prefix), torch.Generator().manual_seed(seed))
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("copies", ALL_COPIES, ids=lambda copies: type(copies).__name__)
@pytest.mark.parametrize("name", RECIPES)
def test_a_prefix_is_never_noised(name: str, copies: NoisedCopies) -> None:
    """The rest is noised exactly as without a prefix."""
    system, target = tiny_lm(VOCAB, name, copies), windows(64)
    shown, free = (seen_in_training(system, target, prefix) for prefix in (5, 0))
    x0 = target.repeat_interleave(len(shown) // 64, 0)
    assert torch.equal(shown[:, :5], x0[:, :5])
    assert torch.equal(shown[:, 5:], free[:, 5:])
    assert (free[:, :5] != x0[:, :5]).double().mean() > 0.2, "without a prefix these positions are noised"


@pytest.mark.parametrize("name", RECIPES)
def test_specials_in_packed_text(name: str) -> None:
    """Absorbing noise treats ``<eos>`` like other tokens; the other noises never change special symbols."""
    system, target = tiny_lm(VOCAB, name), windows(256)
    shown = seen_in_training(system, target, prefix=0)
    noised = shown != target.repeat_interleave(len(shown) // 256, 0)
    special = ~VOCAB.is_ordinary(target).repeat_interleave(len(shown) // 256, 0)
    absorbing = name.endswith("absorbing")
    assert system.process.noise.unit == ("tokens" if absorbing else "ordinary")
    assert (noised[special].double().mean() > 0.2) == absorbing
    assert absorbing or not noised[special].any()


@pytest.mark.parametrize("prefix", [0, 4, 11])
@pytest.mark.parametrize("name", ["rdm_absorbing", "rdm_multinomial", "rdm_mixture"])
def test_loss_by_hand(name: str, prefix: int) -> None:
    """Mean weighted, smoothed cross-entropy over the noised positions after the prefix."""
    system, target = tiny_lm(VOCAB, name, FixedCopies()), windows(12)
    batch = window_batch(target, prefix)
    (term,) = system.loss(batch)
    drawn = FixedCopies()(system.process, target)
    x_t = drawn.x_t.clone()
    x_t[:, :prefix] = target[:, :prefix]
    log_probs = system.denoiser(x_t, drawn.t).log_softmax(-1)
    allowed = system.process.noise.learnable.nonzero().flatten().tolist()
    total, counted = torch.tensor(0.0), 0
    for row in range(12):
        weight = 1 - (int(drawn.t[row]) - 1) / STEPS
        for n in range(prefix, 16):
            token = int(target[row, n])
            counted += token in allowed or (name == "rdm_absorbing")
            if x_t[row, n] != token:
                smooth = log_probs[row, n, allowed].mean()
                total = total - weight * (0.9 * log_probs[row, n, token] + 0.1 * smooth)
    counts = system.counts(batch)
    if name != "rdm_absorbing":
        assert counted == int(counts["ordinary"]) < int(counts["tokens"])
    assert int(counts[term.unit]) == counted
    assert total > 0
    torch.testing.assert_close(term.total / counts[term.unit], total / counted, rtol=1e-4, atol=1e-6)


def test_the_bound_excludes_the_prefix() -> None:
    """It sums over learnable positions, noised or not; prefix positions are not learnable."""
    system, target = tiny_lm(VOCAB, "multinomial", FixedCopies()), windows(6)
    asked: list[tuple[Tensor, ...]] = []
    system.denoiser.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[3]))
    system.loss(window_batch(target, prefix=4))
    learned = VOCAB.is_ordinary(target)
    learned[:, :4] = False
    assert torch.equal(torch.stack(asked[0], 1), learned.nonzero())


def test_keep_clean_accepts_one_mask_per_row() -> None:
    x0 = torch.tensor([[5, 6, 7], [8, 9, 10]])
    noised = NoisedBatch(x0, torch.full_like(x0, 1), torch.tensor([1, 2]), torch.tensor([[True, True, False]] * 2))
    kept = noised.keep_clean(torch.tensor([[True, False, False], [False, True, False]]))
    assert kept.x_t.tolist() == [[5, 1, 1], [1, 9, 1]]
    assert kept.learnable.tolist() == [[False, True, False], [True, False, False]]
    assert noised.x_t.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("name", ["rdm_absorbing", "rdm_multinomial", "rdm_mixture"])
def test_no_transition_changes_the_prefix(name: str, transition: str) -> None:
    """At temperature 1, with special symbols in the prefix; no noise is left at the end."""
    system, source, recorder = tiny_lm(VOCAB, name).eval(), windows(5)[:, :6], Recorder()
    source[0, 2], source[1, 5] = VOCAB.eos, VOCAB.mask
    decoding = one_canvas(TRANSITIONS[transition](), temperature=1.0, top_p=0.95)
    hypotheses = system.generate(source, decoding, torch.Generator().manual_seed(0), recorder)
    assert len(recorder) == 8 or (transition in FEWER_ITERATIONS and 0 < len(recorder) < 8)
    for state, outcome in recorder:
        assert torch.equal(state.tokens[:, :6], source)
        assert torch.equal(outcome.tokens[:, :6], source)
        assert state.free.sum() == 5 * 10
    written = recorder.seen[-1][1].tokens[:, 6:]
    assert system.process.noise.learnable[written].all()
    assert torch.equal(hypotheses.tokens, truncate(written, VOCAB, 128))
    assert torch.equal(hypotheses.calls, sum(state.active.any(1).long() for state, _ in recorder))


def test_empty_prefix() -> None:
    """The whole canvas is filled."""
    system = tiny_lm(VOCAB, "rdm_multinomial").eval()
    hypotheses = system.generate(torch.empty(3, 0, dtype=torch.long), one_canvas(Unconditional()))
    assert hypotheses.tokens.shape == (3, 16)
    assert VOCAB.is_ordinary(hypotheses.tokens).all()
    assert hypotheses.rows.tolist() == [0, 1, 2]


def test_truncate() -> None:
    eos, pad = VOCAB.eos, VOCAB.pad
    tokens = torch.tensor([[5, 6, 7, 8, 9], [5, eos, 7, eos, 9], [eos, 6, 7, 8, 9], [5, 6, 7, eos, 9]])
    assert truncate(tokens, VOCAB, 3).tolist() == [[5, 6, 7], [5, pad, pad], [pad, pad, pad], [5, 6, 7]]
    assert truncate(tokens, VOCAB, 9).tolist()[3] == [5, 6, 7, pad, pad]


def test_continuations_are_truncated_at_eos_and_at_128_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 positions, 32 of them prompt; an ``<eos>`` in the prompt has no effect."""
    system, decoding = tiny_lm(VOCAB, max_length=256).eval(), one_canvas(Commit(), steps=2)
    source, filled = windows(3, 32), torch.full((3, 256), 7)
    source[:, 3] = VOCAB.eos
    filled[1, 42], filled[2, 200] = VOCAB.eos, VOCAB.eos
    canvases = []

    def run(process: Any, denoise: Any, canvas: Any, *_: Any) -> Decoded:
        canvases.append(canvas)
        tokens = torch.where(canvas.pinned, canvas.tokens, filled)
        return Decoded(tokens, torch.zeros(3), torch.arange(3), torch.ones(3))

    monkeypatch.setattr(decoding, "run", run)
    tokens = system.generate(source, decoding).tokens
    assert canvases[0].tokens.shape == (3, 256)
    assert canvases[0].pinned.sum(1).tolist() == [32, 32, 32]
    assert tokens.shape == (3, 128)
    assert (tokens != VOCAB.pad).sum(1).tolist() == [128, 10, 128]


def test_likelihoods() -> None:
    """With zero weights every token costs ``log`` of the number of predictable ids."""
    target = windows(400)
    batch = window_batch(target)
    for system, barred, kind in ((tiny_lm(VOCAB, "absorbing"), 2, "bound"), (tiny_ar_lm(VOCAB), 3, "exact")):
        for parameter in system.parameters():
            torch.nn.init.zeros_(parameter)
        found = system.eval().likelihood(batch, None, torch.Generator().manual_seed(0))
        assert found is not None
        assert found.kind == kind
        assert found.tokens.tolist() == [16] * 400
        assert found.nats.mean().item() == pytest.approx(16 * math.log(VOCAB.size - barred), rel=0.02)


def test_invalid_decodings_and_options_raise() -> None:
    system = tiny_lm(VOCAB)
    with pytest.raises(UserError, match=r"decoding\.length_candidates=3, but open-ended text has no lengths"):
        system.check(sampler())
    with pytest.raises(UserError, match=r"decoding\.steps=21 exceeds diffusion\.num_steps=20"):
        system.check(one_canvas(Ancestral(), steps=21))
    with pytest.raises(UserError, match="decoding=test is not for diffusion over tokens"):
        system.check(LeftToRight("test"))
    with pytest.raises(UserError, match="the prompt has 16 tokens; at most 15"):
        system.generate(windows(2), one_canvas(Ancestral()))
    with pytest.raises(UserError, match=r"system\.max_tokens must be at least 1, got 0"):
        tiny_lm(VOCAB, max_tokens=0)
    system.check(one_canvas(Ancestral(), steps=20))


@pytest.mark.parametrize(
    ("name", "transition"),
    [("rdm_absorbing", Unconditional()), ("absorbing", Ancestral()), ("rdm_multinomial", Unconditional())],
    ids=["rdm_absorbing", "absorbing", "rdm_multinomial"],
)
def test_overfits_32_windows(name: str, transition: Transition) -> None:
    """The first four tokens of each window are continued as in the window."""
    vocab, text = packed(32, 12, ends=name.endswith("absorbing"))
    batch = window_batch(text, prefix=4)
    system = tiny_lm(vocab, name, dim=64, max_length=12)
    overfit(system, batch, steps=300, lr=4e-3)
    generator = torch.Generator().manual_seed(0)
    written = system.generate(text[:, :4], one_canvas(transition, steps=10), generator).tokens
    right = (written == truncate(text[:, 4:], vocab, 128)).double().mean()
    assert right > 0.9, right


@pytest.mark.parametrize("build", [tiny_lm, tiny_ar_lm])
def test_trains_with_lightning(build: Any) -> None:
    """Two steps, and a validation with a prefix that logs its loss."""
    system: System = build(VOCAB)
    module = TrainingModule(system, Optimization(InverseSqrt(warmup_steps=1), lr=1e-3))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    batches = [window_batch(windows(4), prefix) for prefix in (0, 4)]
    for batch in batches:
        batch.counts = system.counts(batch)
    trainer.fit(module, *(DataLoader([batch] * 2, batch_size=None) for batch in batches))
    assert trainer.callback_metrics["val/loss"].isfinite()
    unchanged = [name for name, parameter in module.named_parameters() if torch.equal(parameter, before[name])]
    assert unchanged == []
