"""``python docs/build/figures.py``: draws the figures of docs/figures, except the decoding (``python -m rdm.animate``).

Each figure is an SVG file for light and dark backgrounds. Curves of results are read from ``results/`` and README.md.
"""

import matplotlib
import torch
from decoder_figures import DECODER_FIGURES
from drawing import BLUE, FOLDER, GREEN, INK, ORANGE, SOFT, STYLE, as_svg, axes
from learning_figures import LEARNING_FIGURES
from matplotlib.figure import Figure
from result_figures import RESULT_FIGURES

from rdm.decoding import schedule as decoding_schedule
from rdm.diffusion import noise, reweighting, schedule
from rdm.diffusion.process import DiffusionProcess
from rdm.vocab import Vocab

SENTENCE = ["the", "small", "dog", "runs", "across", "the", "green", "grass"]
OTHERS = ["house", "blue", "sings", "table", "of", "seven", "under", "paper", "rain", "walks", "quick", "door"]


def forward() -> Figure:
    """Draws of ``q(x_t | x_0)`` for one sentence, with absorbing and with uniform noise."""
    first = 5
    vocab = Vocab(size=first + len(SENTENCE) + len(OTHERS))
    words = ["", "", "", "", "", *SENTENCE, *OTHERS]
    x0 = torch.arange(first, first + len(SENTENCE))[None]
    steps = [0, 10, 20, 30, 40, 50]
    figure = Figure(figsize=(10, 2.7))
    for column, (title, kind) in enumerate(
        [("absorbing", noise.Absorbing(vocab)), ("uniform", noise.Uniform(vocab))], 1
    ):
        process = DiffusionProcess(schedule.Linear(50), kind)
        drawn = figure.add_subplot(1, 2, column)
        drawn.set_axis_off()
        drawn.set_title(f"{title} noise", color=INK, fontsize=10, loc="left")
        drawn.set_xlim(-1.1, len(SENTENCE))
        drawn.set_ylim(-len(steps) + 0.4, 0.6)
        for row, step in enumerate(steps):
            sample = process.corrupt(x0, torch.tensor([step]), torch.Generator().manual_seed(step))[0]
            drawn.text(-1.1, -row, f"t = {step}", va="center", fontsize=8, color=SOFT)
            for position, token in enumerate(sample.tolist()):
                kept = token == x0[0, position]
                box = {
                    "boxstyle": "round,pad=0.25",
                    "facecolor": GREEN if kept else SOFT,
                    "alpha": 0.35,
                    "edgecolor": "none",
                }
                text = "mask" if token == vocab.mask else words[token]
                style = "normal" if token != vocab.mask else "italic"
                drawn.text(
                    position + 0.4, -row, text, ha="center", va="center", fontsize=7.5, color=INK, bbox=box, style=style
                )
    return figure


def schedules() -> Figure:
    """Noise schedules and weights over the diffusion step."""
    steps = torch.arange(0, 51)
    figure = Figure(figsize=(9, 2.8))
    left = axes(figure, 1, 2, "step t", "kept share $\\alpha_t$", "noise schedules")
    for name, made, colour in (
        ("linear", schedule.Linear(50), BLUE),
        ("cosine", schedule.Cosine(50), ORANGE),
        ("sqrt", schedule.Sqrt(50), GREEN),
    ):
        left.plot(steps, made.alpha(steps), label=name, color=colour)
    left.legend(frameon=False, labelcolor=INK, fontsize=8)
    right = axes(figure, 2, 2, "step t", "weight $w_t$", "weights of the cross-entropy, linear schedule")
    for name, weight, colour in (
        ("constant", reweighting.Constant(), GREEN),
        ("linear", reweighting.Linear(), BLUE),
        ("original", reweighting.Original(), ORANGE),
    ):
        right.plot(steps[1:], weight.weight(steps[1:], schedule.Linear(50)).expand(50), label=name, color=colour)
    right.legend(frameon=False, labelcolor=INK, fontsize=8)
    figure.subplots_adjust(wspace=0.3)
    return figure


def routing() -> Figure:
    """Number of denoised tokens after each of ten iterations, 24 tokens."""
    length, count = torch.tensor([24]), 10
    figure = Figure(figsize=(5, 2.8))
    drawn = axes(figure, 1, 1, "iteration", "denoised tokens of 24")
    for name, made, colour in (
        ("cosine_paper", decoding_schedule.CosinePaper(), GREEN),
        ("linear", decoding_schedule.Linear(), BLUE),
        ("cosine", decoding_schedule.Cosine(), ORANGE),
    ):
        numbers = [0, *(int(made.denoised(i, count, length)) for i in range(1, count + 1))]
        drawn.plot(range(count + 1), numbers, marker="o", markersize=3, label=name, color=colour)
    drawn.legend(frameon=False, labelcolor=INK, fontsize=8)
    return figure


CONCEPT_FIGURES = {"noise": forward, "schedules": schedules, "routing": routing}


def main() -> None:
    """Draw all figures."""
    FOLDER.mkdir(exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name, draw in {**CONCEPT_FIGURES, **RESULT_FIGURES, **DECODER_FIGURES, **LEARNING_FIGURES}.items():
            (FOLDER / f"{name}.svg").write_text(as_svg(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
