"""The report as Markdown and as one HTML file with figures and the decoding page inside."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdm.evaluation.markup import is_number, markdown
from rdm.evaluation.tables import Cells
from rdm.templates import html_templates

DECODING_PAGE = "decoding.html"
"""The page of ``generate.py trace=true``, in the folder of the report."""
TEMPLATES = html_templates(Path(__file__).parent)


@dataclass(frozen=True)
class Section:
    """A heading with tables, each with its caption, and figures (PNG and SVG files of the same names)."""

    title: str
    tables: Sequence[tuple[Cells, str]] = ()
    figures: Sequence[Path] = ()
    figure_title: str = ""


def render_markdown(sections: Sequence[Section], folder: Path) -> str:
    """The report as Markdown; figures and the decoding page are linked."""
    blocks = ["# Results"]
    for section in sections:
        blocks.append(f"## {section.title}")
        for (header, body), caption in section.tables:
            blocks += [markdown(header, body), *([f"{caption}\n"] if caption else [])]
        blocks += [
            f"![{section.figure_title}{file.stem}]({file.name})" for file in section.figures if file.suffix == ".png"
        ]
    if (folder / DECODING_PAGE).is_file():
        blocks.append(f"[How sentences were decoded, iteration by iteration]({DECODING_PAGE})")
    return "\n\n".join(blocks) + "\n"


def render_html(sections: Sequence[Section], folder: Path) -> str:
    """The report as a self-contained page: it can be sent to somebody as one file."""
    decoding = folder / DECODING_PAGE
    page = decoding.read_text(encoding="utf-8") if decoding.is_file() else ""
    return TEMPLATES.get_template("report.html").render(sections=sections, decoding=page)


def data_uri(figure: Path) -> str:
    """An SVG file as the address of an image: in an element of its own its ids cannot clash with other figures."""
    return f"data:image/svg+xml;base64,{b64encode(figure.read_bytes()).decode()}"


TEMPLATES.globals |= {"data_uri": data_uri, "is_number": is_number}
