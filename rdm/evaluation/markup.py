"""Tables as Markdown and as LaTeX."""

from collections.abc import Iterable, Sequence

from rdm.evaluation.grouping import Line


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table; line breaks and bars in cells are escaped."""
    lines = [[" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in (header, *body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(header), *lines[1:]])


def is_number(body: Sequence[Sequence[str]], column: int) -> bool:
    """Whether all cells of a column are numbers or empty; such columns are aligned to the right."""
    return all(not line[column] or line[column][0] in "-0123456789" for line in body)


def latex(header: Sequence[str], body: Iterable[Sequence[str]], notes: str) -> str:
    """A LaTeX table with ``notes`` as its caption; needs the package booktabs."""
    lines = [" & ".join(map(escape, line)) + r" \\" for line in [header, *body]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{''.join('l' if name in Line._fields else 'r' for name in header)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escape(notes)}}}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Escape the special characters of LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    special |= {"|": r"\textbar{}"} | {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)
