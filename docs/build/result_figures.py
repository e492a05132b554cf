"""The figures of results: read from the rows in ``results/`` and from the table of README.md."""

import json
import re
from collections.abc import Iterable
from typing import Any

from drawing import BLUE, GREEN, INK, ORANGE, PURPLE, ROOT, SOFT, axes, bars, label_ends
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Row = dict[str, Any]
ITERATIONS = [2, 4, 10, 16, 25]
DECODINGS = {"rdm": "adaptive decoding", "vanilla": "vanilla decoding"}
COLOURS = {"rdm": BLUE, "vanilla": ORANGE}
ROUTERS = {  # of results/tatoeba_routers.jsonl
    "rdm_commit": "no renoising",
    "mask_predict": "mask-predict",
    "rdm": "adaptive",
    "rdm_cond": "conditional",
    "vanilla": "vanilla",
}


def rows(file: str, **wanted: Any) -> list[Row]:
    """The rows of ``results/<file>.jsonl`` in which every key has the wanted value."""
    found = [json.loads(line) for line in (ROOT / "results" / f"{file}.jsonl").read_text("utf-8").splitlines()]
    return [row for row in found if all(row.get(key) == value for key, value in wanted.items())]


def bleu(row: Row) -> float:
    """sacreBLEU of a row."""
    return float(row["metrics"]["sacrebleu"]["value"])


def by_iterations(found: Iterable[Row]) -> tuple[list[int], list[float]]:
    """Iterations and sacreBLEU, in order."""
    values = {row["steps"]: bleu(row) for row in found}
    return sorted(values), [values[steps] for steps in sorted(values)]


def value(file: str, **wanted: Any) -> float:
    """sacreBLEU of the only row that fits."""
    (row,) = rows(file, **wanted)
    return bleu(row)


def reference_line(drawn: Axes, height: float, name: str) -> None:
    """A horizontal line with its name on it."""
    drawn.axhline(height, color=INK, linewidth=1, linestyle=":")
    drawn.annotate(
        name,
        (0, height),
        (4, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=INK,
        fontsize=8.5,
    )


def calls_axis(drawn: Axes, right: float) -> None:
    """Iterations on the x axis, with room for names of curves."""
    drawn.set_xlim(1, right)
    drawn.set_xticks(ITERATIONS)


def demo() -> Figure:
    """The table of the demo, as README.md has it."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| system \| decoding \|(.*iterations.*)\|$", page, re.MULTILINE)[:1]
    iterations = [int(word) for word in re.findall(r"\d+", head)]
    figure = Figure(figsize=(4.6, 2.7))
    drawn = axes(figure, 1, 1, "iterations", "BLEU")
    ends = []
    for name, colour, line in (("rdm", BLUE, "-"), ("vanilla", ORANGE, "--")):
        (cells,) = re.findall(rf"^\| rdm_absorbing \| {name} \|(.*)\|$", page, re.MULTILINE)
        values = [float(cell) for cell in cells.split("|")]
        drawn.plot(iterations, values, marker="o", markersize=4, color=colour, linestyle=line)
        ends.append((iterations[-1], values[-1], DECODINGS[name], colour))
    label_ends(drawn, ends, gap=3)
    drawn.set_xlim(1.5, 10.4)
    drawn.set_xticks(iterations)
    return figure


def tatoeba() -> Figure:
    """BLEU against network calls on Tatoeba, 20,000 steps; one panel for each noise."""
    figure = Figure(figsize=(8.8, 3.8))
    (autoregressive,) = rows("tatoeba_20000", strategy="beam")
    panels = {
        "absorbing noise": {"rdm_absorbing": ("RDM-absorbing", "o-"), "absorbing": ("absorbing", "s:")},
        "multinomial noise": {"rdm_multinomial": ("RDM-multinomial", "o-"), "multinomial": ("multinomial", "s:")},
    }
    for position, (title, systems) in enumerate(panels.items(), 1):
        drawn = axes(figure, position, 2, "network calls (iterations)", "sacreBLEU", title)
        ends = []
        for system, (name, line) in systems.items():
            for strategy, decoding in DECODINGS.items():
                xs, ys = by_iterations(rows("tatoeba_20000", system=system, strategy=strategy))
                drawn.plot(xs, ys, line, markersize=4, color=COLOURS[strategy])
                ends.append((xs[-1], ys[-1], f"{name}, {decoding.split()[0]}", COLOURS[strategy]))
        reference_line(drawn, bleu(autoregressive), "autoregressive, beam 5")
        label_ends(drawn, ends, gap=1.5)
        drawn.set_ylim(25, 52)
        calls_axis(drawn, 25.5)
    figure.subplots_adjust(wspace=0.85)
    return figure


def multi30k() -> Figure:
    """BLEU against network calls on Multi30k, 10,000 steps."""
    figure = Figure(figsize=(6, 3.6))
    drawn = axes(figure, 1, 1, "network calls (iterations)", "sacreBLEU", "RDM-absorbing on Multi30k")
    ends = []
    curves = {
        "adaptive decoding": (BLUE, "o-", {"strategy": "rdm", "schedule": "Cosine()"}),
        "adaptive decoding,\nschedule=linear": (GREEN, "s-", {"strategy": "rdm", "schedule": "Linear()"}),
        "vanilla decoding": (ORANGE, "o--", {"strategy": "vanilla"}),
    }
    for name, (colour, line, wanted) in curves.items():
        xs, ys = by_iterations(rows("multi30k", system="rdm_absorbing", **wanted))
        drawn.plot(xs, ys, line, markersize=4, color=colour)
        if xs[-1] == ITERATIONS[-1]:
            ends.append((xs[-1], ys[-1], name, colour))
        else:  # the curve ends inside the figure: its name stands above its end
            drawn.annotate(name, (xs[-1], ys[-1]), (-22, 9), textcoords="offset points", color=colour, fontsize=8.5)
    label_ends(drawn, ends, gap=0.8)
    reference_line(drawn, value("multi30k", strategy="beam"), "autoregressive, beam 5")
    drawn.set_ylim(27.5, 41.5)
    calls_axis(drawn, 25.5)
    return figure


def speed() -> Figure:
    """BLEU against sentences a second on Tatoeba, batches of 32 sentences and single sentences."""
    figure = Figure(figsize=(8.8, 3.6))
    panels = {
        "batches of 32, whole test set": "tatoeba_20000",
        "one by one, first 200 test sentences": "tatoeba_batch1",
    }
    looks = {"rdm": (BLUE, "o-", "RDM-absorbing, adaptive"), "vanilla": (ORANGE, "o--", "RDM-absorbing, vanilla")}
    for position, (title, file) in enumerate(panels.items(), 1):
        drawn = axes(figure, position, 2, "sentences a second (log scale)", "sacreBLEU", title)
        drawn.set_xscale("log")
        for strategy, (colour, line, name) in looks.items():
            found = sorted(rows(file, system="rdm_absorbing", strategy=strategy), key=lambda row: int(row["steps"]))
            if not found:
                continue
            xs, ys = [row["sentences_per_second"] for row in found], [bleu(row) for row in found]
            drawn.plot(xs, ys, line, markersize=4, color=colour)
            above = strategy == "rdm"
            for x, y, row in zip(xs, ys, found, strict=True):
                shift = (0, 6) if above else (0, -13)
                drawn.annotate(
                    str(row["steps"]), (x, y), shift, textcoords="offset points", ha="center", color=colour, fontsize=8
                )
            drawn.annotate(
                f"{name}\n(iterations at the points)" if above else name,
                (xs[-1], ys[-1]),
                (-4, 20) if above else (-4, -40),
                textcoords="offset points",
                color=colour,
                fontsize=8.5,
            )
        for strategy, name in (("beam", "autoregressive, beam 5"), ("greedy", "greedy")):
            (row,) = rows(file, strategy=strategy)
            drawn.plot(row["sentences_per_second"], bleu(row), "D", markersize=5, color=INK)
            drawn.annotate(
                name,
                (row["sentences_per_second"], bleu(row)),
                (0, 7),
                textcoords="offset points",
                ha="center",
                color=INK,
                fontsize=8.5,
            )
        drawn.set_ylim(29, 53)
        drawn.set_xlim(4, 500)
        ticks = [5, 10, 20, 50, 100, 200, 400]
        drawn.set_xticks(ticks, [str(tick) for tick in ticks])
        drawn.minorticks_off()
    figure.subplots_adjust(wspace=0.25)
    return figure


def ablation() -> Figure:
    """Bars: training and decoding, weights of the loss, routers (Tatoeba, 10 iterations)."""
    figure = Figure(figsize=(9.4, 3.3))
    left = axes(figure, 1, 3, "sacreBLEU", "", "objective and decoding\n(20,000 steps, test)")
    systems = {
        "rdm_absorbing": "RDM-absorbing",
        "absorbing": "absorbing",
        "rdm_multinomial": "RDM-multinomial",
        "multinomial": "multinomial",
    }
    lines = []
    for system, name in systems.items():
        found = {strategy: value("tatoeba_20000", system=system, strategy=strategy, steps=10) for strategy in DECODINGS}
        lines += [(name, found["rdm"], BLUE), ("", found["vanilla"], ORANGE)]
    bars(left, lines)
    middle = axes(figure, 2, 3, "sacreBLEU", "", "weights of the loss\n(6,000 steps, test)")
    trainings = {
        "constant": "outputs/tatoeba/constant",
        "linear": "outputs/tatoeba/rdm_absorbing",
        "the bound's": "outputs/tatoeba/absorbing",
    }
    lines = []
    for name, run in trainings.items():
        found = {strategy: value("tatoeba", run=run, strategy=strategy, steps=10) for strategy in DECODINGS}
        lines += [(name, found["rdm"], BLUE), ("", found["vanilla"], ORANGE)]
    bars(middle, lines)
    right = axes(figure, 3, 3, "sacreBLEU", "", "decoding of RDM-absorbing\n(20,000 steps, validation)")
    values = {name: value("tatoeba_routers", strategy=strategy) for strategy, name in ROUTERS.items()}
    order = sorted(ROUTERS, key=lambda strategy: -values[ROUTERS[strategy]])
    bars(right, [(ROUTERS[each], values[ROUTERS[each]], COLOURS.get(each, BLUE)) for each in order])
    for drawn in (left, middle, right):
        drawn.set_xlim(0, 46)
    for name, colour, shift in (("adaptive decoding", BLUE, 0.0), ("vanilla decoding", ORANGE, 0.8)):
        left.text(shift, -0.27, f"■ {name}", transform=left.transAxes, color=colour, fontsize=8.5)
    figure.subplots_adjust(wspace=0.62)
    return figure


def training() -> Figure:
    """BLEU against training steps on Tatoeba: 6,000 and 20,000 steps with the same weights of the loss."""
    figure = Figure(figsize=(5.4, 3.4))
    drawn = axes(figure, 1, 1, "training steps", "sacreBLEU", "Tatoeba, 10 iterations, adaptive decoding")
    curves = {
        "autoregressive, beam 5": ("ar", "beam", INK, "D-"),
        "RDM-absorbing": ("constant", "rdm", BLUE, "o-"),
        "absorbing": ("absorbing", "rdm", BLUE, "s:"),
        "multinomial": ("multinomial", "rdm", PURPLE, "s:"),
    }
    ends = []
    for name, (run, strategy, colour, line) in curves.items():
        wanted = {"strategy": strategy} | ({"steps": 10} if strategy == "rdm" else {})
        longer = run if run != "constant" else "rdm_absorbing"
        found = [value("tatoeba", run=f"outputs/tatoeba/{run}", **wanted)]
        found += [value("tatoeba_20000", run=f"outputs/tatoeba_20000/{longer}", **wanted)]
        drawn.plot([6000, 20000], found, line, markersize=4, color=colour)
        drawn.annotate(
            f"{found[0]:.2f}",
            (6000, found[0]),
            (-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=colour,
            fontsize=8.5,
        )
        ends.append((20000, found[1], f"{found[1]:.2f} {name}", colour))
    label_ends(drawn, ends, gap=1.8)
    drawn.set_xlim(3000, 20300)
    drawn.set_ylim(18, 53)
    drawn.set_xticks([6000, 20000], ["6,000", "20,000"])
    return figure


def trials() -> Figure:
    """Bars of the five-minute trials on Tatoeba, ``results/trials.jsonl``."""
    figure = Figure(figsize=(8.8, 3.4))
    found = {row["run"].rsplit("/", 1)[-1]: row for row in rows("trials", data="tatoeba_de_en")}
    constant = {name: row for name, row in found.items() if row["choices"]["reweighting"] == "constant"}
    linear = {name: row for name, row in found.items() if name not in constant}
    panels = (
        ("reweighting=linear, and one change", linear, "base"),
        ("reweighting=constant, and one change", constant, "constant"),
    )
    for position, (title, group, base) in enumerate(panels, 1):
        drawn = axes(figure, position, 2, "sacreBLEU, first 500 validation sentences", "", title)
        order = sorted(group, key=lambda name: -bleu(group[name]))
        bars(
            drawn,
            [
                ("no change" if name == base else name, bleu(group[name]), SOFT if name == base else BLUE)
                for name in order
            ],
        )
        drawn.set_xlim(0, 12)
    figure.subplots_adjust(wspace=0.4)
    return figure


RESULT_FIGURES = {
    "demo": demo,
    "tatoeba": tatoeba,
    "multi30k": multi30k,
    "speed": speed,
    "ablation": ablation,
    "training": training,
    "trials": trials,
}
