"""``python docs/build/inside.py``: writes the table "What is inside" of README.md from the files of ``conf``."""

from pathlib import Path

from rdm.app.choices import CONF, choices
from rdm.app.composition import compose_config

README = Path(__file__).parent.parent.parent / "README.md"
BEGIN, END = "<!-- inside: begin -->\n", "<!-- inside: end -->\n"
ROWS = {
    "systems": ("system", "`system=`"),
    "diffusions": ("diffusion", "`diffusion=`"),
    "noises": ("diffusion/noise", "`diffusion/noise=`"),
    "weights": ("reweighting", "`reweighting=`"),
    "decoders": ("decoding", "`decoding=`"),
    "selection of candidates": ("selection", "`selection=`"),
    "tasks and data": ("data", "`data=`"),
    "metrics": ("metrics", "`metrics=`"),
    "optimisers": ("optimizer", "`optimizer=`"),
    "tables of the paper": ("sweep", "`sweep=`"),
}
HIDDEN = {"as_trained"}


def table() -> str:
    """One row per group with all its choices."""
    lines = ["| component | option | choices |", "| --- | --- | --- |"]
    for title, (group, typed) in ROWS.items():
        names = [f"`{name}`" for name in choices(group) if name not in HIDDEN]
        if group == "metrics":
            names = [f"{name} ({', '.join(metrics(name.strip('`')))})" for name in names]
        lines.append(f"| {title} | {typed} | {' '.join(names)} |")
    return "\n".join(lines) + "\n"


def metrics(choice: str) -> list[str]:
    """The names of the metrics of a choice."""
    return list(compose_config("evaluate", [f"metrics={choice}"]).metrics)


def with_table(page: str) -> str:
    """The page with the table between the two comments."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return head + BEGIN + table() + END + tail


if __name__ == "__main__":
    assert CONF.is_relative_to(README.parent), "another copy of rdm is installed: set PYTHONPATH"
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
