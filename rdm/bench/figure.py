"""Figure of rates by vocabulary, length, batch size and iterations."""

from pathlib import Path

from rdm.bench.timing import Measurement

DIMENSIONS = ("vocabulary", "length", "batch", "iterations")


def draw(results: list[Measurement], file: Path) -> None:
    """Draw a panel per dimension for training and decoding, in units per second and GFLOP/s."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, panels = pyplot.subplots(2, len(DIMENSIONS), figsize=(13, 6), squeeze=False)
    for line, kind in zip(panels, ("training", "decoding"), strict=True):
        for axes, dimension in zip(line, DIMENSIONS, strict=True):
            points = [result for result in results if result.section == f"{kind} by {dimension}"]
            if not points:
                axes.axis("off")
                continue
            axes.plot([int(point.name) for point in points], [point.per_gflops for point in points], "o-")
            axes.set(xscale="log", yscale="log", xlabel=dimension, ylabel=f"{points[0].unit} per GFLOP/s", title=kind)
            axes.grid(alpha=0.3)
    canvas.tight_layout()
    canvas.savefig(file, dpi=120)
    pyplot.close(canvas)
