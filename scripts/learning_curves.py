"""``python scripts/learning_curves.py RUN ... > results/learning_curves.csv``: the curves of docs/learning.md.

Minutes are CPU minutes of training in proportion to the steps, those of a warm start included.
"""

import csv
import sys
from pathlib import Path

import rdm

COLUMNS = ("data", "system", "minutes", "step", "bleu", "nats")


def curve(run: Path) -> list[tuple[str, str, str, int, str, str]]:
    """Return one row for each validation of a run."""
    model, warm_start = rdm.load(run), run / "warm_start"
    before = rdm.load(warm_start).cost["cpu_seconds"] / 60 if warm_start.exists() else 0.0
    per_step = (model.cost["cpu_seconds"] / 60 - before) / model.cost["steps"]
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        logged = [line for line in csv.DictReader(file) if line.get("val/bleu") and line.get("val/nats_per_token")]
    rows = []
    for line in logged:
        step, bleu, nats = int(line["step"]) + 1, float(line["val/bleu"]), float(line["val/nats_per_token"])
        minutes = f"{before + step * per_step:.2f}"
        rows.append((str(model.run.config.data.name), model.name, minutes, step, f"{bleu:.2f}", f"{nats:.3f}"))
    return rows


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for argument in sys.argv[1:]:
        writer.writerows(curve(Path(argument)))
