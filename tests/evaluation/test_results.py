"""The results store and the report."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from rdm.errors import UserError
from rdm.evaluation.metrics import sacre_bleu
from rdm.evaluation.report import cells, markdown, write_report
from rdm.evaluation.results import append, read


def row(strategy: str, steps: int | None, value: float, seed: int = 1, **more: object) -> dict[str, object]:
    return {
        "run": "outputs/a",
        "system": "rdm_absorbing",
        "metric": "sacrebleu",
        "signature": "nrefs:1",
        "strategy": strategy,
        "steps": steps,
        "value": value,
        "seed": seed,
        "sentences": 10,
        "sentences_per_second": 5.0,
        **more,
    }


def write_many(arguments: tuple[str, int]) -> None:
    file, writer = arguments
    for number in range(50):
        append(Path(file), {"writer": writer, "number": number, "text": "x" * 5000})


def test_parallel_writers_leave_whole_rows(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(write_many, [(str(file), writer) for writer in range(4)]))
    rows = read([file])
    assert sorted((r["writer"], r["number"]) for r in rows) == [(w, n) for w in range(4) for n in range(50)]


def test_table_has_a_column_per_number_of_iterations() -> None:
    rows = [row("rdm", 2, 10), row("rdm", 10, 20), row("vanilla", 2, 5)]
    header, body = cells(rows)
    assert header == ["system", "decoding", "2 iterations", "10 iterations"]
    assert body == [["rdm_absorbing", "rdm", "10.00", "20.00"], ["rdm_absorbing", "vanilla", "5.00", ""]]


def test_rows_without_iterations_have_the_last_column(tmp_path: Path) -> None:
    """An autoregressive model takes as many iterations as there are tokens."""
    rows = [row("rdm", 10, 20), row("beam", None, 30, system="ar", length_penalty=1.0)]
    header, body = cells(rows)
    assert header == ["system", "decoding", "10 iterations", "token by token"]
    assert body == [["ar", "beam", "", "30.00"], ["rdm_absorbing", "rdm", "20.00", ""]]
    assert "- ar, beam, token by token: 5.00 sentences/s" in markdown(rows)
    assert all(file.is_file() for file in write_report(rows, tmp_path))
    more = [*rows, row("beam", None, 31, system="ar", length_penalty=0.6)]
    assert cells(more)[1][:2] == [
        ["ar", "beam, length_penalty 1.0", "", "30.00"],
        ["ar", "beam, length_penalty 0.6", "", "31.00"],
    ]


def test_seeds_are_averaged_and_repeats_replaced() -> None:
    rows = [row("rdm", 2, 99, seed=1), row("rdm", 2, 10, seed=1), row("rdm", 2, 14, seed=2)]
    assert cells(rows)[1] == [["rdm_absorbing", "rdm", "12.00 ± 2.83"]]


def test_other_settings_are_not_averaged() -> None:
    """What differs between rows is named, so that a table never mixes, say, two schedules."""
    rows = [row("rdm", 2, 10, schedule="Linear"), row("rdm", 2, 20, schedule="Cosine")]
    assert cells(rows)[1] == [
        ["rdm_absorbing", "rdm, schedule Linear", "10.00"],
        ["rdm_absorbing", "rdm, schedule Cosine", "20.00"],
    ]


def test_report_files(tmp_path: Path) -> None:
    for entry in (row("rdm", 2, 10), row("rdm", 4, 12)):
        append(tmp_path / "run" / "results.jsonl", entry)
    page, picture = write_report(read([tmp_path]), tmp_path / "out")
    assert "| rdm_absorbing | rdm | 10.00 | 12.00 |" in page.read_text()
    assert "nrefs:1" in markdown(read([tmp_path]))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        read([tmp_path / "nothing"])
    broken = tmp_path / "results.jsonl"
    broken.write_text('{"a": 1}\n{"a":')
    with pytest.raises(UserError, match="line 2"):
        read([broken])


def test_bleu_has_a_signature() -> None:
    metric = sacre_bleu(["a b c d e"], [["a b c d e"]])
    assert metric.value == pytest.approx(100)
    assert "tok:13a" in metric.signature
    assert sacre_bleu(["a b c d x"], [["a b c d e"]]).value < 90
    assert sacre_bleu(["a b c d x"], [["a b c d e"], ["a b c d x"]]).value == pytest.approx(100)
