"""Blocks: order, counts and noise levels, and one block as no blocks."""

import pytest
import torch

from rdm.decoding.sampler import Canvas
from rdm.errors import UserError
from tests.decoding.helpers import (
    ALL_ROUTERS,
    CASES,
    NOISES,
    TRANSITIONS,
    VOCAB,
    ContextDenoiser,
    decode,
    make_canvas,
    make_process,
    make_sampler,
)


class ManySteps(ContextDenoiser):
    """A denoiser of rows with different steps; stores the steps of all calls."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.rows: list[torch.Tensor] = []

    def __call__(self, tokens: torch.Tensor, t: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.rows.append(t)
        parts = [super(ManySteps, self).__call__(x[None], s[None], p[None]) for x, s, p in zip(tokens, t, positions)]  # noqa: B905
        return torch.cat(parts)


@pytest.mark.parametrize(("name", "noise"), [*CASES, *(("posterior", noise) for noise in NOISES)])
def test_one_block_is_no_blocks(name: str, noise: str) -> None:
    """To the bit, with a block as long as the longest row or longer, also with random proposals."""
    process, canvas = make_process(noise, 8), make_canvas([9, 4, 1, 0], prefix=1)
    every = {**TRANSITIONS, **ALL_ROUTERS}
    runs = [
        decode(every[name](), process, ContextDenoiser(process, 10), canvas, 6, temperature=1.0, block=block)
        for block in (None, 9, 30)
    ]
    (plain, steps), *others = runs
    for decoded, seen in others:
        assert torch.equal(decoded.tokens, plain.tokens)
        assert torch.equal(decoded.scores, plain.scores)
        assert torch.equal(decoded.calls, plain.calls)
        assert [state.t for state, _ in seen] == [state.t for state, _ in steps]


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_blocks_are_filled_from_left_to_right(name: str, noise: str) -> None:
    """Later blocks stay as they were at first, earlier ones never change again, and no noise is left."""
    process, canvas = make_process(noise, 6), make_canvas([7, 4, 3, 0], prefix=2)
    denoise = ManySteps(process, 9)
    decoded, seen = decode(ALL_ROUTERS[name](), process, denoise, canvas, 4, block=3)
    index = torch.where(~canvas.pinned, torch.arange(9).expand(4, -1) - 2, -1).div(3, rounding_mode="floor")
    first, current = seen.seen[0][0].tokens, 0
    for state, outcome in seen:
        changed = index[state.active]
        if len(changed):
            assert len(changed.unique()) == 1
            assert int(changed[0]) in (current, current + 1)
            current = int(changed[0])
        later = (index > current) & ~canvas.pinned
        assert torch.equal(outcome.tokens[later], first[later])
        assert not outcome.denoised[later].any()
        earlier = (index < current) & ~canvas.pinned
        assert torch.equal(outcome.tokens[earlier], state.tokens[earlier])
        assert outcome.denoised[earlier].all()
    assert current == 2
    assert torch.equal(seen.seen[-1][1].denoised, ~canvas.pinned)
    assert VOCAB.is_ordinary(decoded.tokens[~canvas.pinned]).all()
    assert decoded.calls[3] == 0


def test_network_reads_the_noise_level_of_the_row() -> None:
    """Linear alphas: the step is the share of noisy positions, of the block by its plan and of all later blocks."""
    process, canvas = make_process("absorbing", 12), make_canvas([6, 3])
    denoise = ManySteps(process, 6)
    decode(TRANSITIONS["commit"](), process, denoise, canvas, 3, block=3)
    assert [rows.tolist() for rows in denoise.rows[:3]] == [[12, 12], [10, 8], [8, 4]]  # (1, 2/3, 1/3) * 3 + 3 of 6
    assert [rows[0].item() for rows in denoise.rows[3:]] == [6, 4, 2]


def test_rows_are_independent() -> None:
    """A row has the same text, score and calls alone and in a batch with longer rows."""
    process, lengths = make_process("absorbing", 8), [5, 9, 2]
    denoise, canvas = ManySteps(process, 11), make_canvas(lengths, prefix=2)
    for name in ("uncond", "threshold"):
        together, _ = decode(TRANSITIONS[name](), process, denoise, canvas, 4, block=4)
        for row, length in enumerate(lengths):
            one = Canvas(canvas.tokens[row : row + 1, : length + 2], canvas.pinned[row : row + 1, : length + 2])
            alone, _ = decode(TRANSITIONS[name](), process, denoise, one, 4, block=4)
            assert alone.tokens[0].tolist() == together.tokens[row, : length + 2].tolist()
            assert alone.scores[0].item() == pytest.approx(together.scores[row].item(), rel=1e-5)
            assert alone.calls[0] == together.calls[row]


def test_counts_within_a_block() -> None:
    """Each block has all iterations, with the counts of the schedule for its own length."""
    process, canvas = make_process("absorbing", 12), make_canvas([10])
    _, seen = decode(TRANSITIONS["uncond"](), process, ManySteps(process, 10), canvas, 4, block=4)
    denoised = [int(outcome.denoised.sum()) for _, outcome in seen]
    assert denoised == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 10]


def test_certain_blocks_are_skipped() -> None:
    """An adaptive router that has filled its block goes on with the next: no idle iterations."""
    process, canvas = make_process("absorbing", 12), make_canvas([9, 2])
    decoded, seen = decode(ALL_ROUTERS["threshold"](), process, ManySteps(process, 9), canvas, 12, block=3)
    assert all(state.active.any() for state, _ in seen)
    assert decoded.calls[0] == len(seen) or decoded.calls[0] + 1 == len(seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 0}, r"decoding\.block must be at least 1, got 0"),
        ({"block": 4, "prune_after": 2}, r"decoding\.prune_after and decoding\.block: use only one of them"),
    ],
)
def test_invalid_options(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_sampler(TRANSITIONS["uncond"](), 4, **options)
