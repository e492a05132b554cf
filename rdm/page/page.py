"""Rendering of the decoding page: one HTML file with style and script inside."""

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdm.data.tokenizer import MASK
from rdm.decoding.trace import TokenState
from rdm.page.trajectory import Example, Trajectory
from rdm.templates import html_templates

TEMPLATES = html_templates(Path(__file__).parent)
STATE_NAMES = {
    TokenState.NOISE: "noise",
    TokenState.NEW: "newly denoised",
    TokenState.KEPT: "kept",
    TokenState.BACK: "sent back to noise",
    TokenState.DELETED: "deleted",
}


@dataclass(frozen=True)
class Page:
    """Examples and the file they are written to."""

    file: Path
    examples: list[Example]

    def write(self) -> None:
        """Render the examples into the file; missing folders are created."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(render(self.examples), encoding="utf-8")


def render(examples: Sequence[Example]) -> str:
    """Render a self-contained HTML page."""
    trajectories = [trajectory for example in examples for trajectory in example.trajectories]
    last = max(len(trajectory.steps) for trajectory in trajectories) - 1
    states = {token.state for trajectory in trajectories for step in trajectory.steps for token in step.tokens}
    return TEMPLATES.get_template("page.html").render(examples=examples, last=last, states=states)


def render_trajectory(trajectory: Trajectory, source: str) -> str:
    """Render one trajectory of the page as an HTML element, to be inserted by a script.

    The properties of tokens are in attributes ``data-style``: a Content-Security-Policy may forbid ``style``.
    """
    return str(TEMPLATES.get_template("parts.html").module.article(trajectory, source, "data-style"))  # type: ignore[attr-defined]


def embed(examples: Sequence[Example], height: int = 420) -> str:
    """The page inside a frame, for notebooks: its style and script do not affect what is around it."""
    page = html.escape(render(examples), quote=True)
    return f'<iframe srcdoc="{page}" style="width:100%;height:{height}px;border:0" title="decoding"></iframe>'


def text_direction(*texts: str) -> str:
    """``rtl`` or ``ltr``: the direction of the first letter of the first text that has one, as ``dir=auto`` decides.

    ``dir=auto`` itself would change from iteration to iteration: masks have no direction, noise has any.
    """
    kinds = (unicodedata.bidirectional(character) for text in texts for character in text)
    return next(("ltr" if kind == "L" else "rtl" for kind in kinds if kind in ("L", "R", "AL")), "ltr")


def token_widths(trajectory: Trajectory) -> dict[int, int]:
    """The longest text at each position over all iterations, so that tokens do not move when others change."""
    widths: dict[int, int] = {}
    for step in trajectory.steps:
        for token in step.tokens:
            size = 2 if token.text == MASK else len(token.text)  # masks are shown as blanks
            widths[token.position] = max(widths.get(token.position, 0), size)
    return widths


def merge_examples(examples: Sequence[Example]) -> list[Example]:
    """Merge examples of the same source; their trajectories are shown side by side."""
    merged: dict[str, Example] = {}
    for example in examples:
        previous = merged.get(example.source)
        trajectories = [*(previous.trajectories if previous else []), *example.trajectories]
        merged[example.source] = Example(example.source, example.references, trajectories)
    return list(merged.values())


TEMPLATES.globals |= {
    "names": STATE_NAMES,
    "mask": MASK,
    "token_widths": token_widths,
    "text_direction": text_direction,
}
