"""``python docs/build/row_tables.py``: writes tables of docs/systems.md and docs/learning.md from rows in results/."""

from typing import Any

from decoders import ROOT, rows

PAGES = {
    ROOT / "docs" / "systems.md": ("toy_systems", "multi30k_systems"),
    ROOT / "docs" / "learning.md": (
        "equal_minutes_tatoeba",
        "equal_minutes_multi30k",
        "equal_minutes_valid",
        "tatoeba_75",
        "wikitext2_any_order",
    ),
}
"""Which files of rows are shown on which page."""
COLUMNS = {
    "toy_systems": ("training", "decoding", "BLEU"),
    "multi30k_systems": ("system", "steps", "decoding", "sacreBLEU", "chrF"),
    **dict.fromkeys(
        ("equal_minutes_tatoeba", "equal_minutes_multi30k"),
        ("run", "CPU minutes", "decoding", "candidates", "chosen by", "calls", "sacreBLEU", "chrF"),
    ),
    "equal_minutes_valid": (
        "run",
        "sentences",
        "decoding",
        "ahead",
        "lengths",
        "candidates",
        "chosen by",
        "calls",
        "sacreBLEU",
    ),
    "tatoeba_75": ("run", "minutes", "decoding", "calls", "sacreBLEU", "chrF"),
    "wikitext2_any_order": ("system", "CPU minutes", "decoding", "bits per token", "Diversity", "token entropy"),
}


def value(row: dict[str, Any], metric: str) -> float:
    """The value of a metric."""
    return float(row["metrics"][metric]["value"])


def decoding(row: dict[str, Any]) -> str:
    """The decoding of a row and its iterations."""
    return f"`{row['strategy']}`" + (f", {row['steps']} iterations" if row.get("steps") else "")


def open_ended_line(row: dict[str, Any]) -> str:
    """One line of a table of language models; a likelihood belongs to the run, so one of its rows has it."""
    bits, metrics = row["metrics"].get("bits_per_token"), row["metrics"]
    kind = bits and f"{bits['value']:.2f} ± {bits['error']:.2f} ({bits['signature'].split('|')[0]})"
    steps = f", {row['steps']} iterations" if row.get("steps") else ""
    cells = [
        f"`{row['system']}`",
        f"{row['training']['cpu_seconds'] / 60:.0f}",
        f"`{row['strategy']}`{steps}",
        kind or "",
    ]
    cells += [f"{metrics['diversity']['value']:.2f}", f"{metrics['token_entropy']['value']:.2f}"]
    return f"| {' | '.join(cells)} |\n"


def equal_minutes_line(name: str, row: dict[str, Any]) -> str:
    """One line of a table of systems that were trained for the same CPU time, or of their decodings."""
    run, used = row["run"].rsplit("/", 1)[-1], row["decoding"]
    selection, calls = used.get("selection", {}), row.get("calls_per_sentence")
    teacher = selection.get("run", "").rsplit("/", 1)[-1]
    chosen = "score and length" if selection.get("class") == "LengthAwareScore" else "score"
    if teacher:
        chosen = "itself" if teacher == run else f"`{teacher}`"
    cells = {
        "run": f"`{run}`",
        "CPU minutes": f"{row['training']['cpu_seconds'] / 60:.0f}",
        "sentences": row["sentences"],
        "decoding": decoding(row),
        "ahead": used.get("transition", {}).get("ahead", ""),
        "lengths": used.get("length_candidates", ""),
        "candidates": row["candidates"],
        "chosen by": chosen,
        "calls": f"{calls:.1f}" if calls else "",
        "sacreBLEU": f"{value(row, 'sacrebleu'):.2f}",
        "chrF": f"{value(row, 'chrf'):.2f}",
    }
    return f"| {' | '.join(str(cells[column]) for column in COLUMNS[name])} |\n"


def line(name: str, row: dict[str, Any]) -> str:
    """One line of a table."""
    if name == "wikitext2_any_order":
        return open_ended_line(row)
    if name.startswith("equal_minutes"):
        return equal_minutes_line(name, row)
    training, scores = row["training"], [f"{value(row, metric):.2f}" for metric in ("sacrebleu", "chrf")]
    if name == "toy_systems":
        cells = [f"`{' '.join(training['overrides'])}`", decoding(row), scores[0]]
    elif name == "multi30k_systems":
        cells = [f"`{row['system']}`", f"{training['steps']:,}", decoding(row), *scores]
    else:
        calls = row.get("calls_per_sentence")
        called = f"`{row['run'].rsplit('/', 1)[-1]}`" + (
            ", chosen by `tatoeba_ar`" if row["decoding"].get("selection", {}).get("class") == "TeacherScore" else ""
        )
        cells = [called, f"{training['minutes']:.0f}", decoding(row), f"{calls:.1f}" if calls else "", *scores]
    return f"| {' | '.join(cells)} |\n"


def with_tables(page: str, names: tuple[str, ...]) -> str:
    """The page with each table between its two comments, best first."""
    for name in names:
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, rest = page.split(begin)
        head = f"| {' | '.join(COLUMNS[name])} |\n|{' --- |' * len(COLUMNS[name])}\n"
        found = rows(name)
        if "sacrebleu" in found[0]["metrics"]:
            found.sort(key=lambda row: -value(row, "sacrebleu"))
        page = before + begin + head + "".join(line(name, row) for row in found) + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for path, names in PAGES.items():
        path.write_text(with_tables(path.read_text(encoding="utf-8"), names), encoding="utf-8")
