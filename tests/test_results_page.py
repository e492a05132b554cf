"""RESULTS.md and its appendix agree with the result rows in results/."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rdm.evaluation.report import write_report
from rdm.evaluation.results import read_results

ROOT = Path(__file__).parent.parent
SPEEDS = "tatoeba_decoders_speed"  # measured by scripts/decoding_speed.py: no rows of evaluate.py
ROWS = {file.stem: file for file in sorted((ROOT / "results").glob("*.jsonl")) if file.stem != SPEEDS}
ELSEWHERE = {
    "equal_minutes_multi30k",
    "equal_minutes_tatoeba",
    "equal_minutes_valid",
    "learning",
    "multi30k_systems",
    "tatoeba_75",
    "tatoeba_claims",
    "tatoeba_decoders",
    "toy_systems",
    "tatoeba_guidance",
    "tatoeba_one_by_one",
    "wikitext2_any_order",
    "wikitext2_unk",
}
"""Files of rows whose tables are on other pages: docs/learning.md, docs/decoding.md, docs/systems.md; or the claims."""
RESULTS = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
APPENDIX = (ROOT / "docs" / "results" / "appendix.md").read_text(encoding="utf-8")

MODELS = {
    "RDM-absorbing": "rdm_absorbing",
    "RDM-multinomial": "rdm_multinomial",
    "absorbing": "absorbing",
    "multinomial": "multinomial",
    "autoregressive": "ar",
}
DECODINGS: dict[str, dict[str, Any]] = {
    "adaptive": {"strategy": "rdm", "schedule": "Cosine()"},
    "adaptive, `schedule=linear`": {"strategy": "rdm", "schedule": "Linear()"},
    "vanilla": {"strategy": "vanilla"},
    "beam 5": {"strategy": "beam"},
    "greedy": {"strategy": "greedy"},
    "one sample": {"strategy": "mbr", "candidates": 1},
    "most typical of ten samples": {"strategy": "mbr", "candidates": 10},
    "adaptive, 16 iterations": {"strategy": "rdm", "steps": 16},
    "adaptive, 64 iterations": {"strategy": "rdm", "steps": 64},
    "vanilla, 16 iterations": {"strategy": "vanilla", "steps": 16},
    "vanilla, 64 iterations": {"strategy": "vanilla", "steps": 64},
}
METRICS = {  # name in a table, name in a row, digits
    "sacreBLEU": ("sacrebleu", 2),
    "sentence BLEU": ("sentence_bleu", 4),
    "ROUGE-L": ("rouge_l", 4),
    "dist-1": ("dist_1", 4),
    "self-BLEU": ("self_bleu", 4),
    "div-4": ("div_4", 4),
    "Diversity": ("diversity", 2),
    "token entropy": ("token_entropy", 2),
    "bits per token": ("bits_per_token", 2),
}
TATOEBA = {"file": "tatoeba_20000", "system": "rdm_absorbing", "steps": 10}
ADAPTIVE, VANILLA = DECODINGS["adaptive"], DECODINGS["vanilla"]
BOUND = {"file": "tatoeba_20000", "steps": 10, **ADAPTIVE}
CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Adaptive decoding beats vanilla decoding": (TATOEBA | ADAPTIVE, TATOEBA | VANILLA),
    "The same with 4 iterations": (TATOEBA | ADAPTIVE | {"steps": 4}, TATOEBA | VANILLA | {"steps": 4}),
    "The same with 2 iterations": (TATOEBA | ADAPTIVE | {"steps": 2}, TATOEBA | VANILLA | {"steps": 2}),
    "The same with 2, `schedule=linear`": (
        TATOEBA | DECODINGS["adaptive, `schedule=linear`"] | {"file": "tatoeba_schedules_test", "steps": 2},
        TATOEBA | VANILLA | {"steps": 2},
    ),
    "The same on Multi30k": (
        TATOEBA | ADAPTIVE | {"file": "multi30k"},
        TATOEBA | VANILLA | {"file": "multi30k"},
    ),
    "RDM training beats the bound, absorbing noise": (
        BOUND | {"system": "rdm_absorbing"},
        BOUND | {"system": "absorbing"},
    ),
    "The same with multinomial noise": (BOUND | {"system": "rdm_multinomial"}, BOUND | {"system": "multinomial"}),
    "RDM-multinomial improves with iterations": (
        BOUND | {"system": "rdm_multinomial"},
        BOUND | {"system": "rdm_multinomial", "steps": 4},
    ),
    "Vanilla multinomial does not": (
        {"file": "tatoeba_20000", "system": "multinomial", "steps": 4, **VANILLA},
        {"file": "tatoeba_20000", "system": "multinomial", "steps": 25, **VANILLA},
    ),
    "Quality saturates by 10 to 16 iterations": (TATOEBA | ADAPTIVE, TATOEBA | ADAPTIVE | {"steps": 25}),
    "`linear` weights are best": (
        ADAPTIVE | {"file": "tatoeba", "run": "outputs/tatoeba/rdm_absorbing", "steps": 10},
        ADAPTIVE | {"file": "tatoeba", "run": "outputs/tatoeba/constant", "steps": 10},
    ),
    "Close to the autoregressive model": (TATOEBA | ADAPTIVE, {"file": "tatoeba_20000", "strategy": "beam"}),
    "Faster than the autoregressive model": (TATOEBA | ADAPTIVE, {"file": "tatoeba_20000", "strategy": "beam"}),
}
PLUS = {
    **{"file": "tatoeba_decoders", "run": "outputs/tat_plus", "split": "test", "strategy": "rdm", "steps": 10},
    **{"decoding.schedule.class": "Cosine", "decoding.selection.class": "BestScore", "candidates": 5},
    "decoding.stop_on_convergence": None,
}
NEW = PLUS | {"file": "tatoeba_claims"}
TOKEN_STEPS = NEW | {"run": "outputs/equal_minutes/claims/token_steps"}
MULTI30K = {"file": "equal_minutes_multi30k"}
ONE_BY_ONE = {"batch_size": 1, "file": "tatoeba_one_by_one"}
FASTER_CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Adaptive decoding beats vanilla decoding": (PLUS, PLUS | {"strategy": "vanilla"}),
    "The same with 4, `schedule=linear`": (
        PLUS | {"steps": 4, "decoding.schedule.class": "Linear"},
        PLUS | {"steps": 4, "strategy": "vanilla"},
    ),
    "The same with 2, `schedule=linear`": (
        PLUS | {"steps": 2, "decoding.schedule.class": "Linear"},
        PLUS | {"steps": 2, "strategy": "vanilla"},
    ),
    "RDM-multinomial improves with iterations": (TOKEN_STEPS, TOKEN_STEPS | {"steps": 4}),
    "RDM-multinomial is as good as RDM-absorbing": (TOKEN_STEPS, PLUS),
    "`linear` weights are best": (NEW | {"run": "outputs/equal_minutes/claims/linear"}, PLUS),
    "Close to the autoregressive model": (
        {"file": "equal_minutes_tatoeba", "strategy": "draft_beam", "decoding.selection.system": "any_order"},
        {"file": "equal_minutes_tatoeba", "strategy": "beam"},
    ),
    "The same, the autoregressive model choosing": (
        {"file": "equal_minutes_tatoeba", "strategy": "draft_beam", "decoding.selection.system": "ar"},
        {"file": "equal_minutes_tatoeba", "strategy": "beam"},
    ),
    "Close to it on Multi30k": (
        MULTI30K | {"run": "outputs/equal_minutes/multi30k_any_order"},
        MULTI30K | {"run": "outputs/equal_minutes/multi30k_ar"},
    ),
    "The same, distilled, the autoregressive model choosing": (
        MULTI30K | {"run": "outputs/equal_minutes/multi30k_distilled", "decoding.selection.system": "ar"},
        MULTI30K | {"run": "outputs/equal_minutes/multi30k_ar"},
    ),
    "Faster than the autoregressive model": (ONE_BY_ONE | {"strategy": "jacobi"}, ONE_BY_ONE | {"strategy": "beam"}),
}
"""The rows of the first two numbers of each claim, with the settings of the paper and with faster recipes; the claim is
that the first is larger."""
UNRECORDED = {"34.51", "33.91"} | {"2.92", "2.76", "2.73", "1.86", "1.72", "1.68"} | {"0.04", "7.60"}
"""Numbers that no row has: the paper's; losses of metrics.csv; a difference, and a row that was not kept."""


def tables(page: str) -> list[str]:
    """The Markdown tables of a text."""
    return re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS[file].read_text(encoding="utf-8").splitlines()]


def the_row(rows: list[dict[str, Any]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The only row in which every key has the wanted value."""
    (row,) = (row for row in rows if all(look_up(row, key) == value for key, value in wanted.items()))
    return row


def look_up(row: dict[str, Any], key: str) -> Any:
    """The value at a dotted key of a row, None if there is none."""
    value: Any = row
    for name in key.split("."):
        value = (value or {}).get(name)
    return value


@pytest.fixture(scope="module")
def page() -> list[str]:
    """The tables of both pages."""
    return tables(RESULTS) + tables(APPENDIX)


@pytest.mark.slow
def test_tables_are_those_of_the_report(page: list[str], tmp_path: Path) -> None:
    """Every table in the report's format is in a report, and every file of rows has one."""
    measured = [table for table in page if table.startswith("| system | decoding |")]
    reported: set[str] = set()
    shown = set(ROWS) - ELSEWHERE - {"trials"}  # the trials have a table in another format
    for name, file in ROWS.items():
        report = write_report(read_results([file]), tmp_path / name)[0].read_text(encoding="utf-8")
        made = set(tables(report))
        reported |= made
        if name in shown:
            assert made & set(measured), f"no table of {file.name}"
    assert len(measured) >= len(shown)
    for table in measured:
        assert table in reported


def test_training_costs_are_those_of_the_rows(page: list[str]) -> None:
    """Parameters, steps, target tokens, minutes."""
    recorded = set()
    for row in (row for name in ROWS for row in read_rows(name)):
        training = row["training"]
        sizes = [f"{training[size]:,}" for size in ("parameters", "steps", "target_tokens")]
        recorded.add(" | ".join([row["run"], row["system"], *sizes, f"{training['seconds'] / 60:.1f}"]))
    lines = [line for table in page if table.startswith("| training |") for line in table.splitlines()[2:]]
    assert lines
    for line in lines:
        assert line.strip("| ") in recorded


def test_trials_are_those_of_the_rows(page: list[str]) -> None:
    """One line per trial: name, change, steps, minutes, BLEU."""
    lines = {}
    for table in (table for table in page if table.startswith("| trial |")):
        for line in table.splitlines()[2:]:
            name, _, *numbers = cells(line)
            lines[name] = numbers
    for row in read_rows("trials"):
        training, bleu = row["training"], row["metrics"]["sacrebleu"]["value"]
        expected = [f"{training['steps']:,}", f"{training['seconds'] / 60:.1f}", f"{bleu:.2f}"]
        assert lines.pop(row["run"].rsplit("/", 1)[-1]) == expected
    assert not lines


def test_tables_with_readable_names_are_those_of_the_rows() -> None:
    """Tables of RESULTS.md; the line ``Rows:`` before a table names its files."""
    found = re.findall(r"^Rows: (.*)\n\n((?:^\|.*\n)+)", RESULTS, re.MULTILINE)
    assert len(found) == sum(table.startswith("| model |") for table in tables(RESULTS)) == 4
    for files, table in found:
        rows = [row for file in re.findall(r"results/(\w+)\.jsonl", files) for row in read_rows(file)]
        shown = 0
        header, _, *lines = (cells(line) for line in table.splitlines())
        for model, decoding, *numbers in lines:
            wanted = {"system": MODELS[model], **DECODINGS[decoding]}
            assert len(numbers) == len(header) - 2
            for column, number in zip(header[2:], numbers, strict=True):
                if not number:
                    continue
                steps = {"steps": int(column.split()[0])} if column.endswith("iterations") else {}
                metric, digits = METRICS.get(column, METRICS["sacreBLEU"])
                row = the_row(rows, wanted | steps)
                assert number == f"{row['metrics'][metric]['value']:.{digits}f}", f"{model}, {decoding}, {column}"
                shown += column in ("sacreBLEU", "Diversity", "token by token") or column.endswith("iterations")
        assert shown == len(rows)  # every row has a number in the table


@pytest.mark.parametrize(("number", "claims"), enumerate([CLAIMS, FASTER_CLAIMS]), ids=["paper", "faster"])
def test_claims_are_decided_by_the_rows(number: int, claims: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """The first two numbers of a claim are those of its rows, and the word says which is larger."""
    table = [table for table in tables(RESULTS) if table.startswith("| claim |")][number]
    lines = {claim: (verdict, numbers) for claim, verdict, numbers, _ in map(cells, table.splitlines()[2:])}
    assert list(lines) == list(claims)
    for claim, selectors in claims.items():
        verdict, text = lines[claim]
        speed = claim.startswith("Faster")
        first, second = (
            row["sentences_per_second"] if speed else row["metrics"]["sacrebleu"]["value"]
            for row in (
                the_row(read_rows(wanted["file"]), {key: value for key, value in wanted.items() if key != "file"})
                for wanted in selectors
            )
        )
        assert re.findall(r"\d+\.\d\d\b", text)[:2] == [f"{first:.2f}", f"{second:.2f}"], claim
        word = re.split(r"\W", verdict)[0]
        assert {"yes": first > second, "no": first < second, "nearly": 0 < second - first < 1}[word], claim


@pytest.mark.parametrize("text", [RESULTS, APPENDIX], ids=["results", "appendix"])
def test_every_number_with_two_digits_is_in_a_row(text: str) -> None:
    """BLEU and speeds, also in sentences. Values of overrides, p values and predicted tokens have no rows."""
    recorded = set()
    for row in (row for name in ROWS for row in read_rows(name)):
        values = [metric["value"] for metric in row["metrics"].values()] + [row["sentences_per_second"]]
        recorded |= {f"{value:.2f}" for value in values if value is not None}
    for table in tables(text):
        if table.startswith("| model | left context"):
            text = text.replace(table, "")
    text = re.sub(r"\bp = [\d.]+", "", text)
    numbers = set(re.findall(r"(?<![\w.=])\d+\.\d\d(?![\d.])", text))
    assert len(numbers) > 30
    assert not numbers - recorded - UNRECORDED


@pytest.mark.slow
def test_figures_are_those_of_the_rows() -> None:
    """Drawing them again gives the committed files."""
    matplotlib = pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT / "docs" / "build"))
    import decoder_figures
    import drawing
    import result_figures

    with matplotlib.rc_context(drawing.STYLE):
        for name, draw in {**result_figures.RESULT_FIGURES, **decoder_figures.DECODER_FIGURES}.items():
            made = drawing.as_svg(draw())
            assert made == (drawing.FOLDER / f"{name}.svg").read_text(encoding="utf-8"), (
                f"{name}: run docs/build/figures.py"
            )
