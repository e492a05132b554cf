"""The results store, files of hypotheses, and their comparison."""

import math
import resource
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdm.compare import paired_bootstrap
from rdm.errors import UserError
from rdm.evaluation.hypotheses import Outputs, read_hypotheses, write_hypotheses
from rdm.evaluation.results import Row, append, find_row, read_results
from rdm.hashing import settings_hash

ODD = "x\n\r\u2028\0\x85👩\u200d👧\u202e\ufeff" * 500


def write_many(arguments: tuple[str, int]) -> None:
    file, writer = arguments
    for number in range(50):
        append(Path(file), {"writer": writer, "number": number, "text": ODD})


def test_parallel_writers_do_not_mix_rows(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(write_many, [(str(file), writer) for writer in range(4)]))
    rows = read_results([file])
    assert sorted((r["writer"], r["number"]) for r in rows) == [(w, n) for w in range(4) for n in range(50)]
    assert all(row["text"] == ODD for row in rows)


def test_failed_write_leaves_other_rows_readable(tmp_path: Path) -> None:
    """The file size limit is reached in the middle of a row."""
    file = tmp_path / "results.jsonl"
    append(file, {"a": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            append(file, {"text": "x" * 1000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    append(file, {"a": 2})
    assert read_results([file]) == [{"a": 1}, {"a": 2}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=4))
@settings(deadline=None, derandomize=True)
def test_rows_are_read_as_written(rows: list[Row]) -> None:
    """Any content, in the order of writing; fingerprints do not depend on the order of keys."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "deeper" / "results.jsonl"
        file.parent.mkdir()
        file.touch()
        for row in rows:
            append(file, row)
        assert read_results([file]) == read_results([folder]) == rows
    assert [settings_hash(row) for row in rows] == [settings_hash(dict(reversed(row.items()))) for row in rows]


@given(texts=st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_hypotheses_may_be_any_text(texts: list[tuple[str, str, str]]) -> None:
    sources, references, outputs = (list(column) for column in zip(*texts, strict=True))
    with TemporaryDirectory() as folder:
        lines = read_hypotheses(write_lines(Path(folder) / "x.jsonl", sources, references, outputs))
    assert [(line["source"], line["references"][0], line["hypothesis"]) for line in lines] == texts


def test_missing_and_damaged_files_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_results([tmp_path / "nothing"])
    damaged = tmp_path / "results.jsonl"
    damaged.write_text('{"a": 1}\n{"a":')
    with pytest.raises(UserError, match="line 2"):
        read_results([damaged])
    with pytest.raises(UserError, match="does not exist"):
        read_hypotheses(tmp_path / "nothing")
    damaged.write_text('{"a": 1}\n')
    with pytest.raises(UserError, match="has no hypotheses"):
        read_hypotheses(damaged)


def test_find_row(tmp_path: Path) -> None:
    """The last row with the hash is found; rows without a hash (of old versions) are ignored."""
    file = tmp_path / "results.jsonl"
    assert find_row(file, "a") is None
    for row in ({"n": 0}, {"n": 1, "evaluation": "a"}, {"n": 2, "evaluation": "b"}, {"n": 3, "evaluation": "a"}):
        append(file, row)
    assert find_row(file, "a") == {"n": 3, "evaluation": "a"}
    assert find_row(file, "c") is None


def test_fingerprint_depends_on_values_only() -> None:
    assert settings_hash({"a": 1, "b": [2]}) == settings_hash({"b": [2], "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})


def test_hypotheses_are_read_as_written(tmp_path: Path) -> None:
    """Unicode line separators in a text do not end a line; scores that JSON cannot hold are null."""
    file = tmp_path / "hypotheses" / "x.jsonl"
    texts, candidates = ["é\u2028x", "b"], [["é\u2028x", "q"], ["b", "r"]]
    outputs = Outputs(texts, [-0.25, -1 / 3], candidates, [[-0.25, -0.5], [-1 / 3, -math.inf]], 1.0)
    write_hypotheses(file, ["s", "t"], [["1", "2"], ["3", "4"]], outputs)
    assert read_hypotheses(file) == [
        {
            "source": "s",
            "references": ["1", "3"],
            "hypothesis": "é\u2028x",
            "score": -0.25,
            "candidates": ["é\u2028x", "q"],
            "scores": [-0.25, -0.5],
        },
        {
            "source": "t",
            "references": ["2", "4"],
            "hypothesis": "b",
            "score": -0.333333,
            "candidates": ["b", "r"],
            "scores": [-0.333333, None],
        },
    ]
    assert [path.name for path in file.parent.iterdir()] == ["x.jsonl"]


def write_lines(file: Path, sources: list[str], references: list[str], hypotheses: list[str]) -> Path:
    scores = [0.0] * len(hypotheses)
    outputs = Outputs(hypotheses, scores, [[text] for text in hypotheses], [[score] for score in scores], 1.0)
    write_hypotheses(file, sources, [references], outputs)
    return file


def test_paired_bootstrap_finds_clear_differences_only(tmp_path: Path) -> None:
    """The p-value is small for a clear difference and large for none; results are reproducible."""
    sources = [str(i) for i in range(40)]
    references = [f"the quick fox number {i} jumps over dog {i}" for i in range(40)]
    worse = [text.replace("quick", "slow").replace("over", "under") for text in references]
    same = [text if i % 2 else worse[i] for i, text in enumerate(references)]
    mixed = [worse[i] if i % 2 else text for i, text in enumerate(references)]
    files = {
        name: write_lines(tmp_path / name, sources, references, texts)
        for name, texts in {"good": references, "worse": worse, "odd": same, "even": mixed}.items()
    }
    for name, (one, two) in paired_bootstrap(files["worse"], files["good"], samples=200).items():
        assert two.score == pytest.approx(100)
        assert one.score < 90
        assert two.p_value < 0.01, name
    first = paired_bootstrap(files["odd"], files["even"], samples=200)
    again = paired_bootstrap(files["odd"], files["even"], samples=200)
    assert all(two.p_value > 0.2 for _, two in first.values())
    assert [two.p_value for _, two in first.values()] == [two.p_value for _, two in again.values()]
    assert all("bs:200" in name for name in first)
    equal = paired_bootstrap(files["odd"], files["odd"], samples=200)
    assert [two.p_value for _, two in equal.values()] == [1, 1]


def test_comparison_of_different_sources_is_a_user_error(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a", ["s"], ["r"], ["h"])
    two = write_lines(tmp_path / "b", ["t"], ["r"], ["h"])
    with pytest.raises(UserError, match="have different sources or references"):
        paired_bootstrap(one, two)
