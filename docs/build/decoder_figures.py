"""The figures of docs/decoding.md: all decoding methods on one model for each noise."""

from itertools import product

import numpy as np
from decoders import alone, test_row
from drawing import BLUE, GREEN, ORANGE, PURPLE, SOFT, axes
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from result_figures import Row, bleu, rows


def decoders() -> Figure:
    """BLEU against network calls of all decoding methods on one model for each noise (test set of Tatoeba)."""
    figure = Figure(figsize=(10, 4.8))
    panels, panels_of_names = {"rdm_absorbing": "RDM-absorbing", "rdm_multinomial": "RDM-multinomial"}, []
    for position, (system, title) in enumerate(panels.items(), 1):
        drawn = axes(figure, position, 2, "network calls per sentence", "sacreBLEU", title)
        best: dict[str, list[Row]] = {}
        for row in rows("tatoeba_decoders", split="test", system=system):
            if row["decoding"]["selection"]["class"] == "BestScore" and "calls_per_sentence" in row and alone(row):
                best.setdefault(row["strategy"], []).append(row)
        ends = []
        for strategy, found in best.items():
            points = sorted((row["calls_per_sentence"], bleu(row)) for row in found)
            colour = {"rdm": BLUE, "vanilla": ORANGE, "rdm_commit": GREEN}.get(strategy, SOFT)
            drawn.plot(*zip(*points, strict=True), "o-", markersize=4, linewidth=1, color=colour)
            ends.append((*points[-1], strategy, colour))
        drawn.set_xlim(1.5, 12.5)
        drawn.set_xticks([2, 4, 6, 8, 10])
        drawn.margins(y=0.08)
        panels_of_names.append((drawn, ends))
    figure.subplots_adjust(wspace=0.25)
    for drawn, ends in panels_of_names:  # after the last change of the axes
        label_apart(drawn, ends)
    return figure


def decoder_speed() -> Figure:
    """BLEU against sentences per CPU second, mask noise (test set of Tatoeba)."""
    figure, panels_of_names = Figure(figsize=(10, 4)), []
    for position, (batch, title) in enumerate({"1": "one by one", "32": "batches of 32"}.items(), 1):
        drawn = axes(figure, position, 2, "sentences per second of one core (log scale)", "sacreBLEU", title)
        drawn.set_xscale("log")
        names: dict[str, list[tuple[float, float]]] = {}
        for speed in rows("tatoeba_decoders_speed", system="rdm_absorbing"):
            row = test_row(speed)
            name = speed["overrides"].split()[0].removeprefix("decoding=")
            if not alone(row):
                name += ", cached" if row["decoding"]["token_cache"] or row["decoding"]["block_cache"] else ", blocks"
            names.setdefault(name, []).append((speed["sentences_per_cpu_second"][batch], bleu(row)))
        for name, points in names.items():
            colour = {"rdm": BLUE, "vanilla": ORANGE, "rdm_commit": GREEN}.get(name, PURPLE)
            drawn.plot(*zip(*sorted(points), strict=True), "o-", markersize=4, linewidth=1, color=colour)
        drawn.set_xlim(5, 130)
        drawn.set_xticks(ticks := [5, 10, 20, 40, 80], [str(tick) for tick in ticks])
        drawn.minorticks_off()
        drawn.margins(y=0.08)
        ends = [
            (*min(points), name, drawn.get_lines()[i].get_color()) for i, (name, points) in enumerate(names.items())
        ]
        panels_of_names.append((drawn, ends))
    figure.subplots_adjust(wspace=0.2)
    for drawn, ends in panels_of_names:
        label_apart(drawn, ends)
    return figure


def label_apart(drawn: Axes, named: list[tuple[float, float, str, str]]) -> None:
    """Write names beside points where they cover the fewest points, lines and other names; far ones get a thin line.

    Args:
        named: x, y, name and colour of each. The limits of the axes must be set.
    """
    dots = 72 / drawn.get_figure(root=True).dpi
    curves = [drawn.transData.transform(line.get_xydata()) * dots for line in drawn.get_lines()]
    points = np.concatenate(curves)
    # Lines as points at most 3 pt apart.
    taken = np.concatenate([along for curve in curves for along in (curve, *map(between, curve, curve[1:]))])
    boxes: list[np.ndarray] = []  # of names: left, bottom, right, top
    (left, bottom), (right, top) = drawn.transAxes.transform([(0, 0), (1, 1)]) * dots
    for x, y, name, colour in sorted(named, key=lambda each: -each[1]):
        point, width = drawn.transData.transform((x, y)) * dots, TextPath((0, 0), name, size=8).get_extents().width
        others, best = points[np.hypot(*(points - point).T) > 1], None
        for distance, angle in product((8, 13, 20, 28, 38, 50, 64), np.linspace(0, 2 * np.pi, 16, endpoint=False)):
            dx, dy = distance * np.cos(angle), distance * np.sin(angle)
            start = point[0] + dx - (width if dx < -1 else 0 if dx > 1 else width / 2)
            box = np.array([start, point[1] + dy - 4, start + width, point[1] + dy + 4])
            inside = ((taken > box[:2] - 2) & (taken < box[2:] + 2)).all(1).sum()
            beside = ((others > box[:2] - 7) & (others < box[2:] + 7)).all(1).sum()  # the name could be theirs
            covered = sum(bool(((box[:2] < other[2:] + 2) & (box[2:] + 2 > other[:2])).all()) for other in boxes)
            outside = box[0] < left or box[1] < bottom or box[2] > right + 40 or box[3] > top + 4
            cost = distance + 4 * (dx < 1) + 25 * inside + 15 * beside + 500 * (covered + outside)
            if best is None or cost < best[0]:
                best = cost, box, (dx, dy)
        assert best is not None
        _, box, offset = best
        boxes.append(box)
        far = np.hypot(*offset) > 10
        drawn.annotate(
            name,
            (x, y),
            offset,
            textcoords="offset points",
            va="center",
            ha="right" if offset[0] < -1 else "left" if offset[0] > 1 else "center",
            color=colour,
            fontsize=8,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": SOFT, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 2}
            if far
            else None,
        )


def between(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Points of a line in distances of at most 3."""
    return np.linspace(start, end, 2 + int(np.hypot(*(end - start)) // 3))


DECODER_FIGURES = {"decoders": decoders, "decoder_speed": decoder_speed}
