"""Tables and reports from result rows."""

import hashlib
import itertools
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from rdm.evaluation.markup import escape, latex, markdown
from rdm.evaluation.report import print_table, speed_section, write_report
from rdm.evaluation.results import append, read_results
from rdm.evaluation.tables import caption, iterations_table, metrics_of, metrics_table
from tests.evaluation.helpers import make_row


def table_body(*rows: dict[str, Any], metric: str = "sacrebleu") -> list[list[str]]:
    return iterations_table(rows, metric)[1]


def test_columns_are_numbers_of_iterations() -> None:
    header, lines = iterations_table(
        [make_row("rdm", 10, 20), make_row("rdm", 2, 10), make_row("vanilla", 2, 5)], "sacrebleu"
    )
    assert header == ["system", "decoding", "2 iterations", "10 iterations"]
    assert lines == [["rdm_absorbing", "rdm", "10.00", "20.00"], ["rdm_absorbing", "vanilla", "5.00", ""]]


def test_all_metrics_side_by_side(tmp_path: Path) -> None:
    """The paper's layout for QG and QQP, with its numbers; cells of metrics that were not requested are empty."""
    metrics = {"rouge_l": {"value": 0.5, "signature": "r"}, "dist_1": {"value": None, "skipped": "needs x"}}
    own = make_row("mbr", 10, None, data="qqp", candidates=10, metrics=metrics)
    other = make_row("rdm", 2, None, data="qqp", metrics={"rouge_l": {"value": 0.25, "signature": "r"}})
    header, lines = metrics_table([own, other], ["rouge_l", "dist_1"])
    assert header == ["system", "decoding", "iterations", "rouge_l", "paper, rouge_l", "dist_1", "paper, dist_1"]
    assert lines == [
        ["rdm_absorbing", "mbr", "10", "0.5000", "0.5945", "skipped", "0.9849"],
        ["rdm_absorbing", "rdm", "2", "0.2500", "", "", ""],
    ]
    page, tex = (file.read_text() for file in write_report([own, other], tmp_path)[:2])
    assert page.count("| rdm_absorbing | rdm | 2 | 0.2500 |") == 1
    assert tex.count(r"\begin{table}") == 3


def test_report_links_an_existing_decoding_page(tmp_path: Path) -> None:
    link = "[How sentences were decoded, iteration by iteration](decoding.html)"
    write_report([make_row("rdm", 2, 10)], tmp_path)
    assert link not in (tmp_path / "report.md").read_text()
    (tmp_path / "decoding.html").touch()
    write_report([make_row("rdm", 2, 10)], tmp_path)
    assert link in (tmp_path / "report.md").read_text()


def test_html_report_is_one_file(tmp_path: Path) -> None:
    """Tables, figures and the decoding page are inside; markup in settings and pages is escaped."""
    rows = [make_row("rdm", 2, 10, machine="<b>m</b>"), make_row("rdm", 4, 12), make_row("vanilla", 4, 9)]
    (tmp_path / "decoding.html").write_text('<p class="tokens">a &amp; b</p>')
    (file,) = (file for file in write_report(rows, tmp_path) if file.name == "report.html")
    page = file.read_text()
    numbers = re.findall(r'<td class="number">([^<]*)</td>', page)
    assert numbers[:4] == ["10.00", "12.00", "", "9.00"]
    assert page.count("data:image/svg+xml;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "<b>m</b>" not in page
    assert "&lt;b&gt;m&lt;/b&gt;" in page
    (inner,) = re.findall(r'<iframe srcdoc="([^"]*)"', page)
    assert unescape(inner) == '<p class="tokens">a &amp; b</p>'
    (tmp_path / "decoding.html").unlink()
    write_report(rows, tmp_path)
    assert "<iframe" not in file.read_text()


def test_column_of_decodings_without_iterations_comes_last() -> None:
    header, _ = iterations_table([make_row("greedy", None, 20, system="ar"), make_row("rdm", 2, 10)], "sacrebleu")
    assert header[2:] == ["2 iterations", "token by token"]


def test_seeds_are_averaged_and_repeated_evaluations_replaced() -> None:
    rows = [make_row("rdm", 2, 99, seed=1), make_row("rdm", 2, 10, seed=1), make_row("rdm", 2, 14, seed=2)]
    assert table_body(*rows) == [["rdm_absorbing", "rdm", "12.00 ± 2.83"]]
    assert "standard deviation over seeds" in caption(rows, "sacrebleu")


def test_training_seeds_of_a_recipe_are_averaged() -> None:
    """Runs of different recipes have separate lines."""
    other = make_row("rdm", 2, 14, train_seed=2, run="outputs/b")
    assert table_body(make_row("rdm", 2, 10), other) == [["rdm_absorbing", "rdm", "12.00 ± 2.83"]]
    assert table_body(make_row("rdm", 2, 10), {**other, "recipe": "5678"}) == [
        ["rdm_absorbing, run outputs/a", "rdm", "10.00"],
        ["rdm_absorbing, run outputs/b", "rdm", "14.00"],
    ]


def test_runs_are_labelled_by_their_config_choices() -> None:
    """In the column of the system, also where only some decodings differ in them; equal choices: by their folders."""
    choices = {"model": "tiny", "diffusion/pairing": "single", "reweighting": "linear"}
    first = make_row("rdm", 2, 10, choices=choices)
    other = make_row("rdm", 2, 14, recipe="5678", run="outputs/b", choices={**choices, "reweighting": "original"})
    both = ["rdm_absorbing, reweighting linear", "rdm_absorbing, reweighting original"]
    assert [line[:2] for line in table_body(first, other)] == [[label, "rdm"] for label in both]
    vanilla = {**first, "strategy": "vanilla"}
    assert [line[:2] for line in table_body(vanilla, other)] == [[both[1], "rdm"], [both[0], "vanilla"]]
    unpaired = {**other, "choices": {**choices, "diffusion/pairing": "conditioned"}}
    labels = [line[0] for line in table_body(first, unpaired)]
    assert labels == ["rdm_absorbing, pairing single", "rdm_absorbing, pairing conditioned"]
    longer = {**other, "choices": choices}
    labels = [line[0] for line in table_body(first, longer)]
    assert labels == ["rdm_absorbing, run outputs/a", "rdm_absorbing, run outputs/b"]
    third = make_row("rdm", 2, 20, recipe="9", run="outputs/c", choices=choices)
    assert len(table_body(first, other, third)) == 3


def test_rows_with_different_settings_are_not_averaged() -> None:
    """The label names the setting that differs."""
    assert table_body(make_row("rdm", 2, 10, schedule="Linear"), make_row("rdm", 2, 20, schedule="Cosine")) == [
        ["rdm_absorbing", "rdm, schedule Linear", "10.00"],
        ["rdm_absorbing", "rdm, schedule Cosine", "20.00"],
    ]
    other = {"sacrebleu": {"value": 20, "signature": "nrefs:8"}}
    assert table_body(make_row("rdm", 2, 10), make_row("rdm", 2, 20, metrics=other)) == [
        ["rdm_absorbing", "rdm", "signature nrefs:1", "10.00"],
        ["rdm_absorbing", "rdm", "signature nrefs:8", "20.00"],
    ]


def test_columns_hold_the_settings_they_are_named_after(tmp_path: Path) -> None:
    """Training, decoding and evaluation; the third column is there only if it has content, also in LaTeX."""
    rows = [
        make_row("rdm", 2, value, choices={"reweighting": weight}, recipe=weight, schedule=schedule, limit=limit)
        for value, (weight, schedule, limit) in enumerate(itertools.product("ab", "cd", (5, 6)))
    ]
    header, lines = iterations_table(rows, "sacrebleu")
    assert header == ["system", "decoding", "evaluation", "2 iterations"]
    assert lines[1] == ["rdm_absorbing, reweighting a", "rdm, schedule c", "limit 6", "1.00"]
    assert len(lines) == 8
    assert r"\begin{tabular}{lllr}" in latex(header, lines, notes="")
    assert metrics_table(rows, ["sacrebleu"])[0] == ["system", "decoding", "evaluation", "iterations", "sacrebleu"]


def test_splits_have_separate_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of the training split are not mixed with those of the test split, and their caption says so."""
    rows = [make_row("rdm", 2, 10, text="s"), make_row("rdm", 2, 90, split="train", text="t", sentences=20)]
    files = write_report(rows, tmp_path)
    page = files[0].read_text()
    test, train = page.split("## toy (train): sacrebleu")
    assert "| rdm_absorbing | rdm | 10.00 |" in test
    assert "sacrebleu nrefs:1; data: toy; sentences: 10\n" in test
    assert "| rdm_absorbing | rdm | 90.00 |" in train
    assert "sacrebleu nrefs:1; data: toy (train); sentences: 20\n" in train
    assert {"iterations_toy.png", "iterations_toy_train.png"} <= {file.name for file in files}
    print_table(rows)
    assert "data: toy (train)" in capsys.readouterr().out


def test_skipped_metrics_are_not_averaged() -> None:
    """The cell says so, and the caption gives the reason."""
    assert table_body(make_row("rdm", 2, None), make_row("rdm", 4, 12)) == [
        ["rdm_absorbing", "rdm", "skipped", "12.00"]
    ]
    assert table_body(make_row("rdm", 2, None, seed=1), make_row("rdm", 2, 12, seed=2)) == [
        ["rdm_absorbing", "rdm", "12.00"]
    ]
    assert "sacrebleu skipped: needs x" in caption([make_row("rdm", 2, None)], "sacrebleu")


def test_skipped_metrics_do_not_replace_values() -> None:
    """Of a repeated evaluation, or of one with other settings."""
    assert table_body(make_row("rdm", 2, 12), make_row("rdm", 2, None)) == [["rdm_absorbing", "rdm", "12.00"]]
    assert table_body(make_row("rdm", 2, 12, candidates=10), make_row("rdm", 2, None, candidates=1))[0][2] == "12.00"


def test_bars_in_cells_are_escaped(tmp_path: Path) -> None:
    """Signatures contain bars and may be part of a label."""
    entries = [make_row("rdm", 2, 10, metrics={"x": {"value": 10, "signature": f"a|draws:{n}"}}) for n in (1, 2)]
    page = write_report(entries, tmp_path)[0].read_text()
    assert r"| rdm_absorbing | rdm | signature a\|draws:2 | 10.00 |" in page
    assert markdown(["a"], [["b\n| c"]]) == "| a |\n| --- |\n| b \\| c |"


def test_data_sets_have_separate_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"data": "b", "run": "outputs/b", "recipe": "5", "text": "t", "sentences": 20}
    rows = [make_row("rdm", 2, 10, data="a", text="s"), make_row("rdm", 2, 20, **other)]
    files = write_report(rows, tmp_path)
    page = files[0].read_text()
    assert page.index("## a: sacrebleu") < page.index("| rdm_absorbing | rdm | 10.00 |") < page.index("## b: sacrebleu")
    assert page.index("## b: sacrebleu") < page.index("| rdm_absorbing | rdm | 20.00 |")
    assert {"iterations_a.png", "iterations_b.png"} <= {file.name for file in files}
    assert files[1].read_text().count("begin{table}") == 2
    print_table(rows)
    assert "data: a" in (printed := capsys.readouterr().out)
    assert "data: b" in printed


def test_speed_is_compared_with_the_paper() -> None:
    """The paper reports seconds for the whole test set in batches of 50."""
    timing = {"sentences": 3003, "sentences_per_second": 100.1, "machine": "m"}
    own = {**paper_row(data="wmt14_en_de"), **timing}
    ((_, rates), notes), ((_, seconds), _) = speed_section("", [{**own, "batch_size": 50}]).tables
    assert rates == [["rdm_absorbing", "rdm_cond", "100.10"]]
    assert "sentences_per_second batch_size:50|m" in notes
    assert seconds == [["rdm_absorbing", "rdm_cond", "30.00", "31.50"]]
    assert len(speed_section("", [{**own, "batch_size": 32}]).tables) == 1


def test_first_metric_with_a_value_comes_first() -> None:
    chrf = {"value": 0.5, "signature": "s"}
    rows = [make_row("rdm", 2, None)]
    rows[0]["metrics"]["chrf"] = chrf
    assert metrics_of(rows) == ["chrf", "sacrebleu"]
    assert metrics_of(rows, "sacrebleu") == ["sacrebleu", "chrf"]
    assert table_body(*rows, metric="chrf") == [["rdm_absorbing", "rdm", "0.5000"]]  # values of 0 to 1 have four digits


def paper_row(**more: Any) -> dict[str, Any]:
    metrics = {"tokenized_bleu": {"value": 33.0, "signature": "s"}}
    return {**make_row("rdm_cond", 10, None), "data": "iwslt14_de_en", "metrics": metrics, **more}


def test_numbers_of_the_paper_have_their_own_column() -> None:
    header, lines = iterations_table([paper_row(), paper_row(steps=3)], "tokenized_bleu")
    assert header == ["system", "decoding", "3 iterations", "10 iterations", "paper, 10 iterations"]
    assert lines == [["rdm_absorbing", "rdm_cond", "33.00", "33.00", "33.91"]]
    assert "not measured here but printed in the paper (tb:mt)" in caption([paper_row()], "tokenized_bleu")


@pytest.mark.parametrize(
    "other",
    [
        {"data": "toy"},
        {"data": None},
        {"system": "rdm_mixture"},
        {"steps": 11},
        {"strategy": "vanilla"},
        {"split": "valid"},
    ],
    ids=str,
)
def test_numbers_of_the_paper_need_matching_rows(other: dict[str, Any]) -> None:
    header, _ = iterations_table([paper_row(**other)], "tokenized_bleu")
    assert not any("paper" in name for name in header)


def test_latex_is_escaped() -> None:
    text = latex(
        *iterations_table([make_row("rdm", 2, 10, seed=1), make_row("rdm", 2, 14, seed=2)], "sacrebleu"), notes="50%"
    )
    assert r"\caption{50\%}" in text
    assert r"rdm\_absorbing & rdm & 12.00 $\pm$ 2.83 \\" in text
    assert r"\begin{tabular}{llr}" in text
    assert escape("a_b 50% {x}|") == r"a\_b 50\% \{x\}\textbar{}"


def file_hashes(files: list[Path]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_report_is_reproducible_to_the_byte(tmp_path: Path) -> None:
    rows = [
        make_row("rdm", 2, 10),
        make_row("rdm", 4, 12, sentences_per_second=3.0),
        make_row("greedy", None, 15, system="ar"),
    ]
    for entry in rows:
        append(tmp_path / "run" / "results.jsonl", entry)
    first, second = (write_report(read_results([tmp_path]), tmp_path / name) for name in ("one", "two"))
    figures = [f"{name}.{kind}" for name in ("iterations", "speed", "ablation") for kind in ("png", "svg")]
    assert [file.name for file in first] == ["report.md", "report.tex", "report.html", *figures]
    assert file_hashes(first) == file_hashes(second)
    page = first[0].read_text()
    assert "| rdm_absorbing | rdm | 10.00 | 12.00 |  |" in page
    assert "\n\nsacrebleu nrefs:1; data: toy; sentences: 10\n" in page
    assert "## Training" not in page
    assert "| rdm_absorbing | rdm | 5.00 | 3.00 |  |" in page
    assert first[3].read_bytes().startswith(b"\x89PNG")
    assert "![sacrebleu, ablation](ablation.png)" in page
    other = file_hashes(write_report(rows[:2], tmp_path / "three"))
    for name in ("iterations.svg", "ablation.svg"):
        assert other[name] != file_hashes(first)[name]


def test_training_table_has_a_line_per_run_and_checkpoint(tmp_path: Path) -> None:
    cost = {"parameters": 5_983_103, "steps": 900, "target_tokens": 812_345, "seconds": 90.0, "machine": "a CPU"}
    runs = [
        {"run": name, "training": {"overrides": words, **cost}} for name, words in (("b", []), ("a", ["x=1", "y=2"]))
    ]
    rows = [make_row("rdm", steps, 10, **run) for steps in (2, 4) for run in runs]
    page = write_report([*rows, make_row("rdm", 2, 10, run="old")], tmp_path)[0].read_text()
    assert page.endswith(
        "| a | rdm_absorbing | 1 | 5,983,103 | 900 | 812,345 | 1.5 | a CPU | `x=1 y=2` |\n"
        "| b | rdm_absorbing | 1 | 5,983,103 | 900 | 812,345 | 1.5 | a CPU |  |\n"
    )


def test_report_of_skipped_metrics_alone(tmp_path: Path) -> None:
    assert "skipped" in write_report([make_row("rdm", 2, None)], tmp_path)[0].read_text()


def test_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([make_row("rdm", 2, 10)])
    assert "10.00" in capsys.readouterr().out
