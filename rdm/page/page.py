"""The page itself, and the Hydra callback that writes it at the end of generate.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import DictConfig

from rdm.data.tokenizer import MASK
from rdm.decoding.trace import TokenState
from rdm.page.trajectory import Example, Trajectory

# Everything that is filled in is escaped: a token may well read </script>.
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
NAMES = {
    TokenState.NOISE: "noise",
    TokenState.NEW: "newly denoised",
    TokenState.KEPT: "kept",
    TokenState.BACK: "sent back to noise",
}


@dataclass(frozen=True)
class Page:
    """Examples, and the file that shows them."""

    file: Path
    examples: list[Example]

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(render(self.examples), encoding="utf-8")


def render(examples: Sequence[Example]) -> str:
    """The HTML of a page that needs nothing else: style and script are inside."""
    last = max(len(trajectory.steps) for example in examples for trajectory in example.trajectories) - 1
    return TEMPLATES.get_template("page.html").render(
        examples=examples, names=NAMES, mask=MASK, last=last, widths_of=widths
    )


def widths(trajectory: Trajectory) -> dict[int, int]:
    """The longest text that ever stands at each position: with room for it, nothing moves when tokens change."""
    longest: dict[int, int] = {}
    for step in trajectory.steps:
        for token in step.tokens:
            size = 2 if token.text == MASK else len(token.text)  # masks are shown as blanks
            longest[token.position] = max(longest.get(token.position, 0), size)
    return longest


def side_by_side(examples: Sequence[Example]) -> list[Example]:
    """Every source once, with all that was made of it."""
    found: dict[str, Example] = {}
    for example in examples:
        before = found.get(example.source)
        others = before.trajectories if before else []
        found[example.source] = Example(example.source, example.references, [*others, *example.trajectories])
    return list(found.values())


class WritePage(Callback):
    """Writes one page at the end of a run of generate.py, or over everything a multirun of it has decoded."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if isinstance(job_return._return_value, Page):
            self.pages.append(job_return._return_value)

    def on_run_end(self, config: DictConfig, **_: Any) -> None:
        if self.pages:
            page = Page(self.pages[0].file, side_by_side([each for page in self.pages for each in page.examples]))
            page.write()
            print(f"wrote {page.file}")

    on_multirun_end = on_run_end
