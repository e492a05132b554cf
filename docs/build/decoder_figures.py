"""The figures of docs/decoding.md: all decoding methods on one model for each noise."""

from decoders import test_row
from drawing import BLUE, GREEN, ORANGE, PURPLE, SOFT, axes
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from result_figures import Row, bleu, rows


def decoders() -> Figure:
    """BLEU against network calls of all decoding methods on one model for each noise (test set of Tatoeba)."""
    figure = Figure(figsize=(9.6, 4.2))
    panels = {"rdm_absorbing": "RDM-absorbing", "rdm_multinomial": "RDM-multinomial"}
    for position, (system, title) in enumerate(panels.items(), 1):
        drawn = axes(figure, position, 2, "network calls per sentence", "sacreBLEU", title)
        best: dict[str, list[Row]] = {}
        for row in rows("tatoeba_decoders", split="test", system=system):
            if row["decoding"]["selection"]["class"] == "BestScore" and "calls_per_sentence" in row:
                best.setdefault(row["strategy"], []).append(row)
        ends = []
        for strategy, found in best.items():
            points = sorted((row["calls_per_sentence"], bleu(row)) for row in found)
            colour = {"rdm": BLUE, "vanilla": ORANGE, "rdm_commit": GREEN}.get(strategy, SOFT)
            drawn.plot(*zip(*points, strict=True), "o-", markersize=4, linewidth=1, color=colour)
            ends.append((*points[-1], strategy, colour))
        label_apart(drawn, ends)
        drawn.set_xlim(1.5, 12.5)
        drawn.set_xticks([2, 4, 6, 8, 10])
    figure.subplots_adjust(wspace=0.2)
    return figure


def decoder_speed() -> Figure:
    """BLEU against sentences per CPU second, mask noise (test set of Tatoeba)."""
    figure = Figure(figsize=(9.6, 3.8))
    for position, (batch, title) in enumerate({"1": "one by one", "32": "batches of 32"}.items(), 1):
        drawn = axes(figure, position, 2, "sentences per second of one core (log scale)", "sacreBLEU", title)
        drawn.set_xscale("log")
        names: dict[str, list[tuple[float, float]]] = {}
        for speed in rows("tatoeba_decoders_speed", system="rdm_absorbing"):
            name = speed["overrides"].split()[0].removeprefix("decoding=")
            if "token_cache" in speed["overrides"]:
                name += ", cache"
            names.setdefault(name, []).append((speed["sentences_per_cpu_second"][batch], bleu(test_row(speed))))
        for name, points in names.items():
            colour = {"rdm": BLUE, "vanilla": ORANGE, "rdm_commit": GREEN}.get(name, PURPLE)
            drawn.plot(*zip(*sorted(points), strict=True), "o-", markersize=4, linewidth=1, color=colour)
            alone = len(points) == 1
            shift, side = ((6, -3), "left") if alone else ((-6, 4), "right")
            drawn.annotate(name, min(points), shift, textcoords="offset points", ha=side, color=colour, fontsize=8)
        drawn.margins(x=0.35)
        drawn.set_xticks(ticks := [5, 10, 20, 40, 80], [str(tick) for tick in ticks])
        drawn.minorticks_off()
    figure.subplots_adjust(wspace=0.2)
    return figure


def label_apart(drawn: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write names beside points; names of points that are close in both directions are moved apart."""
    placed: list[tuple[float, float]] = []
    low, high = drawn.get_ylim()
    for x, y, name, colour in sorted(ends, key=lambda end: -end[1]):
        at = y
        while any(abs(at - other) < (high - low) / 22 and abs(x - beside) < 2.6 for beside, other in placed):
            at -= 0.02
        placed.append((x, at))
        drawn.annotate(name, (x, at), (6, 0), textcoords="offset points", va="center", color=colour, fontsize=8)


DECODER_FIGURES = {"decoders": decoders, "decoder_speed": decoder_speed}
