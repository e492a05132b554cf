"""``python docs/build/row_tables.py``: writes tables of docs/systems.md and docs/learning.md from rows in results/."""

import re
from statistics import mean, stdev
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
        ("run", "seeds", "CPU minutes", "decoding", "candidates", "chosen by", "calls", "sacreBLEU", "chrF"),
    ),
    "equal_minutes_valid": (
        "run",
        "sentences",
        "decoding",
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


def without_seed(run: str) -> str:
    """The last part of a path to a run, without the seed with which the names of runs after the first one end."""
    return re.sub(r"_[23]$", "", run.rsplit("/", 1)[-1])


def equal_minutes_cells(row: dict[str, Any]) -> dict[str, str]:
    """What rows of one line have in common, in a table of systems that were trained for the same CPU time."""
    run, used = without_seed(row["run"]), row["decoding"]
    selection = used.get("selection", {})
    teacher = without_seed(selection.get("run", ""))
    chosen = "score and length" if selection.get("class") == "LengthAwareScore" else "score"
    if teacher:
        chosen = "itself" if teacher == run else f"`{teacher}`"
    return {
        "run": f"`{run}`",
        "sentences": str(row["sentences"]),
        "decoding": decoding(row),
        "lengths": str(used.get("length_candidates", "")),
        "candidates": str(row["candidates"]),
        "chosen by": chosen,
    }


def equal_minutes_line(name: str, group: list[dict[str, Any]]) -> str:
    """One line of such a table: the mean over seeds, and the standard deviation of BLEU."""
    calls = [row.get("calls_per_sentence") or 0 for row in group]
    bleu = [value(row, "sacrebleu") for row in group]
    cells = equal_minutes_cells(group[0]) | {
        "seeds": str(len(group)),
        "CPU minutes": f"{mean(row['training']['cpu_seconds'] for row in group) / 60:.0f}",
        "calls": f"{mean(calls):.1f}" if any(calls) else "",
        "sacreBLEU": f"{mean(bleu):.2f}" + (f" ± {stdev(bleu):.2f}" if len(group) > 1 else ""),
        "chrF": f"{mean(value(row, 'chrf') for row in group):.2f}",
    }
    return f"| {' | '.join(cells[column] for column in COLUMNS[name])} |\n"


def line(name: str, row: dict[str, Any]) -> str:
    """One line of a table."""
    if name == "wikitext2_any_order":
        return open_ended_line(row)
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
        if name.startswith("equal_minutes"):
            groups: dict[str, list[dict[str, Any]]] = {}
            for row in found:
                groups.setdefault(str(equal_minutes_cells(row)), []).append(row)
            lines = [equal_minutes_line(name, group) for group in groups.values()]
        else:
            lines = [line(name, row) for row in found]
        page = before + begin + head + "".join(lines) + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for path, names in PAGES.items():
        path.write_text(with_tables(path.read_text(encoding="utf-8"), names), encoding="utf-8")
