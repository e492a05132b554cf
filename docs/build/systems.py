"""``python docs/build/systems.py``: writes the tables of docs/systems.md from the rows in results/."""

from typing import Any

from decoders import ROOT, rows

PAGE = ROOT / "docs" / "systems.md"
HEADS = {
    "toy_systems": "| training | decoding | BLEU |\n| --- | --- | --- |\n",
    "multi30k_systems": "| system | steps | decoding | sacreBLEU | chrF |\n| --- | --- | --- | --- | --- |\n",
}


def value(row: dict[str, Any], metric: str) -> float:
    """The value of a metric."""
    return float(row["metrics"][metric]["value"])


def decoding(row: dict[str, Any]) -> str:
    """The decoding of a row and its iterations."""
    return f"`{row['strategy']}`" + (f", {row['steps']} iterations" if row.get("steps") else "")


def line(name: str, row: dict[str, Any]) -> str:
    """One line of a table."""
    if name == "toy_systems":
        cells = [f"`{' '.join(row['training']['overrides'])}`", decoding(row), f"{value(row, 'sacrebleu'):.2f}"]
    else:
        scores = [f"{value(row, metric):.2f}" for metric in ("sacrebleu", "chrf")]
        cells = [f"`{row['system']}`", f"{row['training']['steps']:,}", decoding(row), *scores]
    return f"| {' | '.join(cells)} |\n"


def with_tables(page: str) -> str:
    """The page with each table between its two comments, best first."""
    for name, head in HEADS.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, rest = page.split(begin)
        found = sorted(rows(name), key=lambda row: -value(row, "sacrebleu"))
        page = before + begin + head + "".join(line(name, row) for row in found) + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
