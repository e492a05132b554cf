"""Classifier-free guidance and particle search in a seq2seq system; open-ended text in sliding blocks."""

import pytest
import torch

from rdm.decoding.candidates import BestScore
from rdm.decoding.routing import Unconditional
from rdm.decoding.sampler import Sampler
from rdm.decoding.schedule import Linear
from rdm.decoding.search import Particles
from rdm.decoding.transition import Outcome, State
from rdm.diffusion.process import DiffusionProcess
from rdm.errors import UserError
from rdm.systems.diffusion import DiffusionSystem
from rdm.vocab import Vocab
from tests.builders import RECIPES, batch_from, tiny_denoiser
from tests.decoding.helpers import seeded
from tests.language_models import tiny_lm

VOCAB = Vocab(size=20)
BATCH = batch_from(VOCAB, [([5, 6, 7], [8, 9]), ([9, 8], [7, 6, 5]), ([11], [12, 13, 14, 15])])


@pytest.fixture(scope="module")
def system() -> DiffusionSystem:
    return build(source_dropout=0.3).eval()


def build(source_dropout: float) -> DiffusionSystem:
    noise, schedule, copies, objective, _ = RECIPES["rdm_absorbing"]
    torch.manual_seed(0)
    process, denoiser = DiffusionProcess(schedule, noise(VOCAB)), tiny_denoiser(VOCAB)
    return DiffusionSystem(
        vocab=VOCAB,
        process=process,
        copies=copies,
        objective=objective,
        denoiser=denoiser,
        source_dropout=source_dropout,
    )


def strategy(**options: object) -> Sampler:
    return Sampler("test", 4, Unconditional(), Linear(), length_candidates=2, **options)  # type: ignore[arg-type]


def test_guidance_one_is_no_guidance(system: DiffusionSystem) -> None:
    """To the bit, and with half of the calls."""
    plain, one, two = (
        system.generate(BATCH.source, decoding, seeded())
        for decoding in (strategy(), strategy(guidance=1.0), strategy(guidance=2.0))
    )
    assert torch.equal(plain.tokens, one.tokens)
    assert torch.equal(plain.scores, one.scores)
    assert plain.calls is not None
    assert one.calls is not None
    assert two.calls is not None
    assert (plain.calls.tolist(), two.calls.tolist()) == ([4] * 3, [8] * 3)
    assert not torch.equal(plain.scores, two.scores)


def test_guidance_zero_ignores_the_source(system: DiffusionSystem) -> None:
    """With the lengths given by a template, all sources get the same text."""
    template = torch.tensor([[VOCAB.bos, *[VOCAB.mask] * 4, VOCAB.eos]]).repeat(3, 1)
    texts = [
        system.generate(BATCH.source, strategy(guidance=scale), seeded(), template=template) for scale in (0.0, 1.0)
    ]
    assert len({tuple(row) for row in texts[0].tokens.tolist()}) == 1
    assert len(set(texts[1].scores.tolist())) == 3


def test_share_of_dropped_sources() -> None:
    """Dropped sources keep only the first symbol; without dropout or training nothing changes or is drawn."""
    system, source = build(source_dropout=0.3), BATCH.source[:1].repeat(20_000, 1)
    dropped = system.train().drop_sources(source, seeded())
    empty = (dropped[:, 1:] == VOCAB.pad).all(1)
    assert float(empty.double().mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(dropped[~empty], source[~empty])
    assert (dropped[:, 0] == source[0, 0]).all()
    generator, plain = seeded(), build(source_dropout=0.0)
    before = generator.get_state()
    assert plain.train().drop_sources(source, generator) is source
    assert system.eval().drop_sources(source, generator) is source
    assert torch.equal(generator.get_state(), before)


def test_training_reads_dropped_sources() -> None:
    """The encoder sees what ``drop_sources`` returns."""
    trained, seen = build(source_dropout=0.5).train(), []
    trained.denoiser.network.source_embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for seed in range(10):
        trained.loss(BATCH, seeded(seed))
    shown = torch.stack(seen)
    empty = (shown[:, :, 1:] == VOCAB.pad).all(2)
    assert 0 < int(empty.sum()) < empty.numel()


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        (strategy(guidance=1.5), r"decoding\.guidance=1\.5 needs a run trained with system\.source_dropout above 0"),
    ],
)
def test_guidance_needs_source_dropout(decoding: Sampler, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(source_dropout=0.0).check(decoding)
    build(source_dropout=0.1).check(decoding)
    with pytest.raises(UserError, match="open-ended text has no source to follow"):
        tiny_lm(VOCAB, "rdm_absorbing").check(
            Sampler("test", 4, Unconditional(), Linear(), length_candidates=1, guidance=1.5)
        )


def test_negative_guidance() -> None:
    with pytest.raises(UserError, match=r"decoding\.guidance must be 0 or greater, got -1"):
        strategy(guidance=-1.0)
    with pytest.raises(UserError, match=r"system\.source_dropout must lie in \[0, 1\), got 1"):
        build(source_dropout=1.0)


def test_particles_see_the_sources(system: DiffusionSystem) -> None:
    """The reward of a search gets the candidates of each source with the source itself."""
    seen = []

    class Watching(BestScore):
        def scores(self, candidates):  # type: ignore[no-untyped-def]
            seen.append(candidates)
            return super().scores(candidates)

    decoding = strategy(samples=6, temperature=1.0, search=Particles(every=2, reward=Watching()))
    system.generate(BATCH.source, decoding, seeded())
    assert len(seen) == 1, "after two of four iterations; not after the last"
    assert torch.equal(seen[0].sources, BATCH.source)
    assert seen[0].tokens.shape[:2] == (3, 6)


# --- open-ended text in blocks ---------------------------------------------------------------------------------------


def block_strategy(block: int | None, max_tokens: int | None = None) -> Sampler:
    return Sampler("test", 3, Unconditional(), Linear(), length_candidates=1, block=block, max_tokens=max_tokens)


def test_sliding_blocks() -> None:
    """Text longer than the window: every block is decoded given the last tokens, and calls are added up."""
    lm = tiny_lm(VOCAB, "rdm_multinomial").eval()  # never writes <eos>
    window = lm.denoiser.max_length
    source = torch.randint(5, VOCAB.size, (2, 6), generator=seeded())
    canvases: list[torch.Tensor] = []

    def watch(state: State, outcome: Outcome) -> None:
        assert state.tokens.shape[1] == window
        if state.iteration == 1:
            canvases.append(torch.where(state.free, -1, state.tokens))

    hypotheses = lm.generate(source, block_strategy(4, max_tokens=window + 5), seeded(), watch)
    assert hypotheses.tokens.shape == (2, window + 5)
    text = torch.cat([source, hypotheses.tokens], 1)
    first = -(-(window - 6) // 4)  # blocks in the first window
    extra = -(-(window + 5 - (window - 6)) // 4)  # windows after it
    assert len(canvases) == 1 + extra
    for number, canvas in enumerate(canvases[1:]):
        end = window + 4 * number
        assert torch.equal(canvas[:, : window - 4], text[:, end - (window - 4) : end])
        assert (canvas[:, window - 4 :] == -1).all()
    assert hypotheses.calls is not None
    assert hypotheses.calls.tolist() == [3 * (first + extra)] * 2
    shorter = lm.generate(source, block_strategy(None), seeded())
    assert shorter.tokens.shape[1] == window - 6, "without blocks the window is the limit"
    with pytest.raises(UserError, match=r"decoding\.max_tokens=11, but 10 fit into the window; set decoding\.block"):
        lm.generate(source, block_strategy(None, max_tokens=11), seeded())


def test_sliding_stops_at_the_end_of_all_texts() -> None:
    """No window is decoded after every text has its ``<eos>``."""
    lm = tiny_lm(VOCAB, "rdm_absorbing").eval()
    lm.max_tokens, iterations = 3 * lm.denoiser.max_length, []
    template = torch.randint(5, VOCAB.size, (2, 6), generator=seeded())

    def denoise(*_: object) -> object:
        def certain(tokens: torch.Tensor, t: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
            return torch.eye(VOCAB.size)[VOCAB.eos].expand(int(active.sum()), -1)

        return certain

    lm.denoise = denoise  # type: ignore[method-assign,assignment]
    lm.generate(template, block_strategy(5), seeded(), lambda state, outcome: iterations.append(state.iteration))
    assert iterations == list(range(1, 7)), "two blocks of the first window"


def test_block_must_fit_the_window() -> None:
    lm = tiny_lm(VOCAB, "rdm_absorbing")
    with pytest.raises(UserError, match=r"decoding\.block=16 must be below the window of 16 tokens"):
        lm.check(block_strategy(lm.denoiser.max_length))
