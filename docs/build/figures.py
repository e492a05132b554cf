"""``python docs/build/figures.py``: draws the figures of docs/figures, except the decoding (``python -m rdm.animate``).

Each figure is an SVG file for light and dark backgrounds. Curves of results are read from ``results/`` and README.md.
"""

import io
import json
import re
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rdm.decoding import schedule as decoding_schedule
from rdm.diffusion import noise, reweighting, schedule
from rdm.diffusion.process import DiffusionProcess
from rdm.vocab import Vocab

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "figures"
INK, SOFT = "#111112", "#777778"
BLUE, GREEN, ORANGE, PURPLE = "#0072b2", "#009e73", "#d55e00", "#cc79a7"
"""Okabe and Ito: told apart by colour-blind readers."""
COLOURS = {  # drawn, on light and on dark backgrounds
    "ink": (INK, "#1d2126", "#e8eaed"),
    "soft": (SOFT, "#646c76", "#99a1ab"),
    "blue": (BLUE, BLUE, "#56b4e9"),
    "green": (GREEN, GREEN, "#14b88c"),
    "orange": (ORANGE, ORANGE, "#f07828"),
    "purple": (PURPLE, PURPLE, "#d99bc0"),
}
SENTENCE = ["the", "small", "dog", "runs", "across", "the", "green", "grass"]
OTHERS = ["house", "blue", "sings", "table", "of", "seven", "under", "paper", "rain", "walks", "quick", "door"]


def save(figure: Figure, name: str) -> None:
    """Write a figure whose colours follow the colour scheme of the reader."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()[file.getvalue().index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    for colour, (drawn, _, _) in COLOURS.items():
        svg = svg.replace(drawn, f"var(--{colour})")
    light = " ".join(f"--{colour}: {values[1]};" for colour, values in COLOURS.items())
    dark = " ".join(f"--{colour}: {values[2]};" for colour, values in COLOURS.items())
    style = f"<style>svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    head, _, tail = svg.partition(">")
    (FOLDER / f"{name}.svg").write_text(f"{head}>{style}{tail}", encoding="utf-8")


def axes(figure: Figure, position: int, count: int, xlabel: str, ylabel: str, title: str = "") -> Axes:
    """One of ``count`` axes side by side."""
    made = figure.add_subplot(1, count, position)
    made.set_xlabel(xlabel, color=INK)
    made.set_ylabel(ylabel, color=INK)
    made.set_title(title, color=INK, fontsize=10, loc="left")
    made.tick_params(colors=SOFT, labelcolor=INK)
    made.grid(color=SOFT, alpha=0.2)
    for side in ("top", "right"):
        made.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        made.spines[side].set_color(SOFT)
    return made


def forward() -> None:
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
    save(figure, "noise")


def schedules() -> None:
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
    save(figure, "schedules")


def routing() -> None:
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
    save(figure, "routing")


def curve(
    drawn: Axes, xs: list[int], ys: list[float], label: str, colour: str, dashed: bool = False, dy: int = 0
) -> None:
    """A curve whose name stands at its end."""
    drawn.plot(xs, ys, marker="o", markersize=4, color=colour, linestyle="--" if dashed else "-")
    drawn.annotate(label, (xs[-1], ys[-1]), (6, -3 + dy), textcoords="offset points", color=colour, fontsize=8.5)


def demo() -> None:
    """The table of the demo, as README.md has it."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| system \| decoding \|(.*iterations.*)\|$", page, re.MULTILINE)[:1]
    iterations = [int(word) for word in re.findall(r"\d+", head)]
    figure = Figure(figsize=(4.6, 2.7))
    drawn = axes(figure, 1, 1, "iterations", "BLEU")
    for name, label, colour in (("rdm", "adaptive", BLUE), ("vanilla", "vanilla", ORANGE)):
        (cells,) = re.findall(rf"^\| rdm_absorbing \| {name} \|(.*)\|$", page, re.MULTILINE)
        curve(drawn, iterations, [float(cell) for cell in cells.split("|")], label, colour, name == "vanilla")
    drawn.set_xlim(1.5, 12)
    drawn.set_xticks(iterations)
    save(figure, "demo")


def tatoeba() -> None:
    """BLEU against iterations of the systems on real text, from the rows of results/tatoeba_20000.jsonl."""
    rows = [json.loads(line) for line in (ROOT / "results" / "tatoeba_20000.jsonl").read_text().splitlines()]
    figure = Figure(figsize=(7, 4))
    drawn = axes(figure, 1, 1, "iterations", "sacreBLEU")
    looks = {
        "rdm_absorbing": ("RDM-absorbing", BLUE),
        "rdm_multinomial": ("RDM-multinomial", GREEN),
        "absorbing": ("absorbing", ORANGE),
        "multinomial": ("multinomial", PURPLE),
    }
    shifts = {"RDM-absorbing, vanilla": 8, "RDM-multinomial": -2, "absorbing": -3}
    for system, (name, colour) in looks.items():
        for strategy in ("rdm", "vanilla"):
            found = {
                row["steps"]: row["metrics"]["sacrebleu"]["value"]
                for row in rows
                if (row["system"], row["strategy"], row.get("schedule")) == (system, strategy, "Cosine()")
                or (row["system"], row["strategy"]) == (system, strategy) == (system, "vanilla")
            }
            xs = sorted(found)
            label = name if strategy == "rdm" else f"{name}, vanilla"
            curve(drawn, xs, [found[x] for x in xs], label, colour, strategy == "vanilla", shifts.get(label, 0))
    drawn.set_xlim(1, 33)
    drawn.set_xticks([2, 4, 10, 16, 25])
    save(figure, "tatoeba")


def main() -> None:
    """Draw all figures."""
    FOLDER.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "rdm", "font.size": 9}):
        for draw in (forward, schedules, routing, demo, tatoeba):
            draw()


if __name__ == "__main__":
    main()
