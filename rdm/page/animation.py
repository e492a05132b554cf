"""An animated SVG picture of one decoding: for a README or slides, where the decoding page cannot be shown."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from rdm.data.tokenizer import MASK
from rdm.decoding.trace import Step, TokenState
from rdm.page.page import STATE_NAMES
from rdm.page.trajectory import Trajectory

LETTER, PADDING, GAP, HEIGHT, LEADING = 10.2, 10, 7, 38, 50
"""Width of a letter at 17 px, space inside and between tokens, height of a token and distance of two lines, in px."""
WIDTH, MARGIN, TOP = 860, 28, 112
"""Width of the picture, its margin, and where the first line of tokens starts, in px."""
SPACE = "▁"
"""Marks the beginning of a word in the pieces of a tokenizer."""
SECONDS, HOLD = 0.9, 4
"""Seconds per iteration; how many iterations the last one is held."""
TEMPLATE = Template(Path(__file__).with_name("animation.svg").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Appearance:
    """A token that looks the same from iteration ``first`` up to, not including, ``end``."""

    text: str
    state: TokenState
    confidence: float
    first: int
    end: int


def animate(trajectory: Trajectory, source: str) -> str:
    """Return an SVG file that plays the iterations of a decoding in a loop, in light and dark colours.

    The animation is CSS: a viewer without it, or a reader who prefers no motion, sees the last iteration.
    """
    steps, frames = trajectory.steps, len(trajectory.steps) - 1 + HOLD
    looks = appearances(steps)
    places, lines = place_tokens(
        {position: max(len(label(look.text)) for look in looks[position]) for position in looks}
    )
    bottom = TOP + lines * LEADING
    drawn = [draw_token(look, *places[position], len(steps)) for position in looks for look in looks[position]]
    drawn += [draw_counter(text, index, len(steps)) for index, text in enumerate(counter_labels(steps))]
    return TEMPLATE.substitute(
        width=WIDTH,
        height=bottom + 74,
        card_width=WIDTH - 1.2,
        card_height=f"{bottom + 72.8:.1f}",
        bottom=bottom + 16,
        title=escape(f"Decoding of “{source}” into “{trajectory.output}”, iteration by iteration"),
        source=escape(source),
        strategy=escape(f"{trajectory.model} · {trajectory.strategy}"),
        keyframes="\n".join(keyframes(first, end, len(steps), frames) for first, end in spans(looks, len(steps))),
        seconds=f"{frames * SECONDS:.1f}",
        line=WIDTH - 2 * MARGIN,
        done=f"{(len(steps) - 1) / frames * 100:.2f}",
        tokens="\n".join(drawn),
        legend=draw_legend(bottom + 52, {look.state for each in looks.values() for look in each}),
    )


def counter_labels(steps: Sequence[Step]) -> list[str]:
    """What is written above the tokens of each iteration."""
    last = steps[-1].iteration
    return ["noise", *(f"iteration {step.iteration} of {last}" for step in steps[1:])]


def appearances(steps: Sequence[Step]) -> dict[int, list[Appearance]]:
    """How the token at each position looks over time; iterations without a change are one appearance."""
    positions = sorted({token.position for step in steps for token in step.tokens})
    return {position: list(appearances_at(steps, position)) for position in positions}


def appearances_at(steps: Sequence[Step], position: int) -> Iterator[Appearance]:
    """The appearances of one position, in the order of time."""
    tokens = [(index, token) for index, step in enumerate(steps) for token in step.tokens if token.position == position]
    for (text, state), group in groupby(tokens, key=lambda pair: (pair[1].text, pair[1].state)):
        members = list(group)
        confidences = [token.confidence for _, token in members if token.confidence is not None]
        mean = sum(confidences) / len(confidences) if confidences else 0.0
        yield Appearance(text, state, mean, members[0][0], members[-1][0] + 1)


def spans(looks: Mapping[int, Sequence[Appearance]], count: int) -> list[tuple[int, int]]:
    """All pairs of first and end iteration for which key frames are needed."""
    found = {(look.first, look.end) for each in looks.values() for look in each}
    return sorted(found | {(index, index + 1) for index in range(count)})


def label(text: str) -> str:
    """The text of a token as it is drawn: masks are empty, the mark of a new word is left out.

    >>> [label(text) for text in ("▁dog", "s", "<mask>")]
    ['dog', 's', '']
    """
    return "" if text == MASK else text.removeprefix(SPACE)


def place_tokens(letters: Mapping[int, int]) -> tuple[dict[int, tuple[float, float, float]], int]:
    """Left edge, top edge and width of every token, and the number of lines they take.

    Args:
        letters: the longest text at each position, so that tokens do not move when others change.
    """
    places: dict[int, tuple[float, float, float]] = {}
    left, line = float(MARGIN), 0
    for position, size in letters.items():
        width = max(size, 2) * LETTER + 2 * PADDING
        if left + width > WIDTH - MARGIN and left > MARGIN:
            left, line = float(MARGIN), line + 1
        places[position] = (left, TOP + line * LEADING, width)
        left += width + GAP
    return places, line + 1


def draw_token(look: Appearance, left: float, top: float, width: float, count: int) -> str:
    """A box with the text of a token, visible as long as it looks like this."""
    text = label(look.text)
    box = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{HEIGHT}" rx="7" class="{look.state.value}"'
        f' style="--sure:{look.confidence:.2f}"/>'
    )
    middle = left + width / 2
    piece = f'<text x="{middle:.1f}" y="{top + 25:.1f}" text-anchor="middle" class="piece">{escape(text)}</text>'
    return shown(box + (piece if text else ""), look.first, look.end, count)


def draw_counter(text: str, index: int, count: int) -> str:
    """The label of an iteration, visible during it."""
    content = f'<text x="{WIDTH - MARGIN}" y="86" text-anchor="end" class="soft">{text}</text>'
    return shown(content, index, index + 1, count)


def draw_legend(top: float, states: Collection[TokenState]) -> str:
    """A box of each of the states with its name."""
    drawn, left = [], float(MARGIN)
    for state, name in ((state, name) for state, name in STATE_NAMES.items() if state in states):
        place = f'x="{left:.1f}" y="{top - 12:.1f}" width="24" height="15" rx="4"'
        box = f'<rect {place} class="{state.value}" style="--sure:.8"/>'
        drawn.append(f'{box}<text x="{left + 32:.1f}" y="{top:.1f}" class="soft">{escape(name)}</text>')
        left += 32 + 7.5 * len(name) + 22
    return "".join(drawn)


def shown(content: str, first: int, end: int, count: int) -> str:
    """A group that is visible from iteration ``first`` to ``end`` of ``count``; the last one also without animation."""
    last = " last" if end == count else ""
    return f'<g class="frame{last}" style="animation-name:f{first}-{end}">{content}</g>'


def keyframes(first: int, end: int, count: int, frames: int, fade: float = 0.25) -> str:
    """Key frames that show a group from ``first`` to ``end``, faded over a fraction of an iteration."""

    def percent(frame: float) -> str:
        return f"{100 * frame / frames:.2f}%"

    stops = [] if first == 0 else [f"0%,{percent(first - fade)}{{opacity:0}}"]
    stops.append(f"{percent(first)},{percent(frames if end == count else end - fade)}{{opacity:1}}")
    if end < count:
        stops.append(f"{percent(end)},100%{{opacity:0}}")
    return f"@keyframes f{first}-{end}{{{''.join(stops)}}}"
