"""Formulas as SVG, drawn by matplotlib when the documentation is built: no script, no network, any colour scheme."""

import hashlib
import html
import io
import re
from functools import cache

import matplotlib

matplotlib.use("svg")
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser

ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
"""What the Markdown extension pymdownx.arithmatex makes of ``$...$`` and ``$$...$$``."""
SIZE = 13.5
"""Size of the letters in points where text is 12 pt: Computer Modern looks smaller than the font of the text."""


def draw_formulas(page: str) -> str:
    """Replace every formula of an HTML page with a picture."""

    def replace(match: re.Match[str]) -> str:
        tex = " ".join(html.unescape(match[3]).split())
        picture = draw(tex, display=match[1] == "div")
        return f'<div class="formula">{picture}</div>' if match[1] == "div" else picture

    return ARITHMATEX.sub(replace, page)


@cache
def draw(tex: str, display: bool) -> str:
    """One formula as an SVG element that stands on the base line of the text and has its colour."""
    size = SIZE * (1.15 if display else 1)
    with matplotlib.rc_context({"svg.fonttype": "path", "mathtext.fontset": "cm", "svg.hashsalt": tex}):
        font = FontProperties(size=size, math_fontfamily="cm")
        width, height, depth, *_ = MathTextParser("path").parse(f"${tex}$", dpi=72, prop=font)
        figure = Figure(figsize=((width + 1) / 72, (height + 1) / 72))
        figure.text(0, (depth + 0.5) / (height + 1), f"${tex}$", fontproperties=font, color="#123456")
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True)
    svg = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue()[file.getvalue().index("<svg") :], flags=re.DOTALL)
    # Identifiers must be unique on a page, where equal glyphs of other formulas are.
    prefix = f"m{hashlib.sha256(f'{tex}{display}'.encode()).hexdigest()[:12]}-"
    svg = re.sub(r'(id="|href="#)', rf"\g<1>{prefix}", svg).replace("#123456", "currentColor")
    em = 12  # points of the surrounding text
    style = (
        f"height:{(height + 1) / em:.3f}em;width:{(width + 1) / em:.3f}em;vertical-align:{-(depth + 0.5) / em:.3f}em"
    )
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(tex)}" style="{style}" ', 1)
