"""The figures of docs/learning.md: how fast each system learns."""

import csv
from functools import partial

from drawing import BLUE, GREEN, INK, ROOT, axes, label_ends
from matplotlib.figure import Figure

NAMES = {"ar": "autoregressive", "rdm_absorbing": "RDM-absorbing", "any_order": "any order"}
COLOURS = {"ar": INK, "rdm_absorbing": BLUE, "any_order": GREEN}


def learning(data: str) -> Figure:
    """Validation BLEU (100 sentences) and nats per token against CPU minutes of training."""
    with (ROOT / "results" / "learning_curves.csv").open(encoding="utf-8") as file:
        points = [point for point in csv.DictReader(file) if point["data"] == data]
    figure = Figure(figsize=(9.6, 3.8))
    for position, (key, label) in enumerate({"bleu": "sacreBLEU", "nats": "nats per token"}.items(), 1):
        drawn = axes(figure, position, 2, "CPU minutes of training", label)
        ends = []
        for system, name in NAMES.items():
            x = [float(point["minutes"]) for point in points if point["system"] == system]
            y = [float(point[key]) for point in points if point["system"] == system]
            if x:
                drawn.plot(x, y, "o-", markersize=3, linewidth=1.2, color=COLOURS[system])
                ends.append((x[-1], y[-1], name, COLOURS[system]))
        low, high = drawn.get_ylim()
        label_ends(drawn, ends, gap=(high - low) / 16)
    figure.subplots_adjust(wspace=0.55)
    return figure


LEARNING_FIGURES = {
    "learning": partial(learning, "tatoeba_de_en"),
    "learning_multi30k": partial(learning, "multi30k_de_en"),
}
