"""What the figures of the documentation share: colours for light and dark backgrounds, axes, labels."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

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


STYLE = {"svg.fonttype": "path", "svg.hashsalt": "rdm", "font.size": 9}
"""Matplotlib's settings while a figure is drawn: the same text and ids in every run."""


def as_svg(figure: Figure) -> str:
    """The SVG text of a figure; its colours follow the colour scheme of the reader."""
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
    return f"{head}>{style}{tail}"


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


def label_ends(drawn: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float) -> None:
    """Write names beside the ends of curves, at least ``gap`` (of the y axis) apart.

    Args:
        ends: x, y, name and colour of each.
    """
    below = float("-inf")
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        below = max(y, below + gap)
        drawn.annotate(
            name, (x, below), (6, 0), textcoords="offset points", va="center", color=colour, fontsize=8.5, clip_on=False
        )


def bars(drawn: Axes, lines: Sequence[tuple[str, float, str]], digits: int = 2) -> None:
    """Horizontal bars, the first on top, with name and value.

    Args:
        lines: name, value and colour of each; an empty name continues the group of the bar above.
    """
    height, places, place = 0.8, [], 0.0
    for name, _, _ in lines:
        place += 1.35 if name and places else 0.85
        places.append(place)
    drawn.barh(places, [value for _, value, _ in lines], height=height, color=[colour for _, _, colour in lines])
    for at, (_, value, _) in zip(places, lines, strict=True):
        drawn.annotate(
            f"{value:.{digits}f}", (value, at), (3, 0), textcoords="offset points", va="center", color=INK, fontsize=8
        )
    named = [(at, name) for at, (name, _, _) in zip(places, lines, strict=True) if name]
    drawn.set_yticks([at for at, _ in named], [name for _, name in named])
    drawn.tick_params(axis="y", length=0)
    drawn.grid(axis="y", visible=False)
    drawn.invert_yaxis()
