"""Figures from result rows."""

import re
from pathlib import Path

from rdm.evaluation.figures import draw_figures, plot_bars, plot_calls, plot_iterations
from tests.evaluation.helpers import make_row


def test_bars_are_means_over_seeds(tmp_path: Path) -> None:
    """One bar per label and number of iterations."""
    from matplotlib import pyplot

    rows = [
        make_row("rdm", 2, 10, seed=1),
        make_row("rdm", 2, 14, seed=2),
        make_row("rdm", 4, 20),
        make_row("vanilla", 4, 15),
    ]
    series = {"rdm": {2: rows[:2], 4: rows[2:3]}, "vanilla": {4: rows[3:]}}
    figure, axes = pyplot.subplots()
    plot_bars(axes, series, "sacrebleu")
    assert [bar.get_height() for bar in axes.patches] == [12, 20, 15]
    assert [round(bar.get_x(), 3) for bar in axes.patches] == [-0.4, 0.6, 1.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2 iterations", "4 iterations"]
    pyplot.close(figure)


def test_lines_have_different_colours() -> None:
    """Horizontal lines of decodings without iterations included."""
    from matplotlib import pyplot

    series = {"beam": {None: [make_row("beam", None, 3)]}, "greedy": {None: [make_row("greedy", None, 2)]}}
    series["rdm"] = {2: [make_row("rdm", 2, 1)]}
    figure, axes = pyplot.subplots()
    plot_iterations(axes, series, "sacrebleu")
    assert len({line.get_color() for line in axes.lines}) == 3
    pyplot.close(figure)


def test_long_legends_are_placed_beside_the_axes(tmp_path: Path) -> None:
    """The figure becomes wider."""
    from matplotlib import pyplot

    def width(count: int) -> int:
        rows = [make_row("rdm", 2, 10, schedule=f"number {n}") for n in range(count)]
        (file, *_) = draw_figures(rows, "sacrebleu", tmp_path)
        return pyplot.imread(file).shape[1]

    assert width(7) > width(6) + 100


def test_twenty_lines_have_twenty_colours(tmp_path: Path) -> None:
    rows = [make_row("rdm", steps, 10 + n, schedule=f"number {n}") for n in range(20) for steps in (2, 4)]
    (_, svg, *_) = draw_figures(rows, "sacrebleu", tmp_path)
    assert len(set(re.findall(r"stroke: (#\w{6}); stroke-width: 1.5", svg.read_text()))) == 20


def test_calls_are_drawn_if_they_are_counted(tmp_path: Path) -> None:
    """One point per number of iterations, in order of the calls; rows without calls have no point and no figure."""
    from matplotlib import pyplot

    rows = [
        {**make_row("rdm", steps, 10 * steps), "calls_per_sentence": calls} for steps, calls in ((2, 1.5), (4, 3.0))
    ]
    series = {"rdm": {4: rows[1:], 2: rows[:1]}, "beam": {None: [make_row("beam", None, 3)]}}
    figure, axes = pyplot.subplots()
    plot_calls(axes, series, "sacrebleu")
    ((line,),) = [axes.lines]
    assert line.get_xydata().tolist() == [[1.5, 20.0], [3.0, 40.0]]
    pyplot.close(figure)
    names = {file.name for file in draw_figures(rows, "sacrebleu", tmp_path)}
    assert {"calls.png", "calls.svg"} <= names
    assert "calls.png" not in {file.name for file in draw_figures([make_row("rdm", 2, 1)], "sacrebleu", tmp_path)}
