"""Settings of result rows, of the "already evaluated" check and of table labels, for components made up here."""

from typing import Any

import pytest

from rdm.describe import Described
from rdm.evaluation.grouping import group_rows
from rdm.evaluation.metrics.base import Scorer, Texts
from rdm.evaluation.results import Row
from rdm.evaluation.settings import compared_settings, decoding_settings, evaluation_hash
from rdm.evaluation.tables import caption, iterations_table, metrics_table


class Router(Described):
    """A router whose argument no list of settings knows."""

    def __init__(self, patience: float = 0.5) -> None:
        self.patience = patience


class Committing(Router):
    """A router with a further argument."""

    def __init__(self, patience: float = 0.5, window: int = 3) -> None:
        super().__init__(patience)


class Eager(Described):
    """A router without arguments."""


class Toy(Described):
    """A decoding."""

    candidates = 1

    def __init__(self, name: str, steps: int, router: Described | None = None, patience: int = 1) -> None:
        self.name, self.steps = name, steps


class Length(Scorer):
    """The mean number of units per hypothesis."""

    name = "length"

    def __init__(self, unit: str = "words") -> None:
        self.unit = unit

    def score(self, texts: Texts) -> tuple[float, str]:
        return float(sum(map(len, texts.hypotheses))), "mean"


def make_row(decoding: Toy, scorer: Scorer | None = None, value: str = "abc", **more: Any) -> Row:
    """A row as evaluate.py writes it."""
    scorer = scorer or Length()
    settings = {
        "run": "outputs/a",
        "recipe": "1234",
        "train_seed": 1,
        "data": "toy",
        "system": "rdm_absorbing",
        **decoding_settings(decoding.name, decoding.steps, decoding.candidates, decoding.describe()),
        "seed": 1,
        "split": "test",
        "text": "f00",
        "sentences": 10,
        **more,
    }
    return {
        **settings,
        "evaluation": evaluation_hash(settings, [scorer], None),
        "metrics": {scorer.name: scorer([value], [[]]).row()},
        "sentences_per_second": 5.0,
    }


def labels(*rows: Row, metric: str = "length") -> list[str]:
    return [", ".join(filter(None, line[1:])) for line in group_rows(rows, metric)]


def test_router_argument_reaches_row_hash_and_table() -> None:
    """An argument of a new class needs no entry anywhere."""
    rows = [make_row(Toy("toy", 4, Router(patience)), value="x" * int(10 * patience)) for patience in (0.5, 0.9)]
    assert [row["decoding"]["router"] for row in rows] == [
        {"class": "tests.evaluation.test_settings.Router", "patience": 0.5},
        {"class": "tests.evaluation.test_settings.Router", "patience": 0.9},
    ]
    assert rows[0]["evaluation"] != rows[1]["evaluation"]
    assert iterations_table(rows, "length")[1] == [
        ["rdm_absorbing", "toy, router.patience 0.5", "5.00"],
        ["rdm_absorbing", "toy, router.patience 0.9", "9.00"],
    ]
    assert "standard deviation" not in caption(rows, "length")


def test_equal_evaluations_have_equal_hashes() -> None:
    first, again = (make_row(Toy("toy", 4, Router())) for _ in range(2))
    assert first["evaluation"] == again["evaluation"]
    assert first["evaluation"] != make_row(Toy("toy", 4, Router()), seed=2)["evaluation"]
    assert first["evaluation"] != make_row(Toy("toy", 2, Router()))["evaluation"]
    settings = {"seed": 1}
    assert len({evaluation_hash(settings, [Length()], draws) for draws in (None, 8, "all")}) == 3


def test_decoding_settings_have_no_duplicates_of_name_and_steps() -> None:
    assert decoding_settings("toy", 4, 1, Toy("toy", 4).describe()) == {
        "strategy": "toy",
        "steps": 4,
        "candidates": 1,
        "decoding": {"class": "tests.evaluation.test_settings.Toy", "router": None, "patience": 1},
    }


def test_scorer_argument_reaches_row_hash_and_table() -> None:
    rows = [make_row(Toy("toy", 4), Length(unit)) for unit in ("words", "letters")]
    assert [row["metrics"]["length"]["settings"]["unit"] for row in rows] == ["words", "letters"]
    assert rows[0]["evaluation"] != rows[1]["evaluation"]
    assert labels(*rows) == ["toy, unit words", "toy, unit letters"]


def test_components_of_different_classes_are_labelled_by_class() -> None:
    """Arguments of one class alone add nothing to the label; those that vary within a class do."""
    decodings = [Toy("toy", 4, router) for router in (Committing(), Eager(), None)]
    assert labels(*map(make_row, decodings)) == [
        "toy, router tests.evaluation.test_settings.Committing",
        "toy, router tests.evaluation.test_settings.Eager",
        "toy, router None",
    ]
    varied = [Toy("toy", 4, router) for router in (Committing(window=1), Committing(window=2), Eager())]
    assert labels(*map(make_row, varied)) == [
        "toy, router tests.evaluation.test_settings.Committing, window 1",
        "toy, router tests.evaluation.test_settings.Committing, window 2",
        "toy, router tests.evaluation.test_settings.Eager",
    ]


def test_keys_are_shortened_where_that_is_unambiguous() -> None:
    """``patience`` is an argument of the decoding and of its router; ``window`` of the router alone."""
    first, second = (make_row(Toy("toy", 4, Committing(patience=p, window=w), q)) for p, w, q in ((0, 1, 2), (3, 4, 5)))
    assert labels(first, second) == [
        "toy, router.patience 0.0, window 1, decoding.patience 2",
        "toy, router.patience 3.0, window 4, decoding.patience 5",
    ]


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("seed", (1, 2), ["toy"]),
        ("train_seed", (1, 2), ["toy"]),
        ("machine", ("a", "b"), ["toy"]),
        ("commit", ("a", "b"), ["toy"]),
        ("time", ("a", "b"), ["toy"]),
        ("hypotheses", ("a", "b"), ["toy"]),
        ("calls_per_sentence", (3.0, 4.0), ["toy"]),
        ("tokens_per_call", (3.0, 4.0), ["toy"]),
        ("training", ({"steps": 3}, {"steps": 4}), ["toy"]),
        ("run", ("outputs/a", "outputs/b"), ["toy"]),
        ("split", ("train", "test"), ["toy, split train", "toy, split test"]),
        ("limit", (None, 3), ["toy, limit None", "toy, limit 3"]),
        ("new_option", ([1, 2], [1, 3]), ["toy, new_option [1, 2]", "toy, new_option [1, 3]"]),
    ],
)
def test_all_keys_are_compared_but_the_ignored_ones(key: str, values: tuple[Any, Any], expected: list[str]) -> None:
    rows = [{**make_row(Toy("toy", 4)), key: value} for value in values]
    assert labels(*rows) == expected


def test_split_explains_text_and_sentences() -> None:
    """Hash and size of the text are part of a label only if the split does not determine them."""
    decoding = Toy("toy", 4)
    test, valid = make_row(decoding), make_row(decoding, split="valid", text="beef", sentences=20)
    assert labels(test, valid) == ["toy, split test", "toy, split valid"]
    changed = make_row(decoding, text="beef")
    assert labels(test, changed) == ["toy, text f00", "toy, text beef"]
    assert len(labels(test, valid, changed)) == 3


def test_all_metrics_of_a_table_are_compared() -> None:
    """Rows that differ in the settings of the second metric alone have separate lines."""

    class Other(Length):
        name = "other"

    rows = [make_row(Toy("toy", 4)) for _ in range(3)]
    for row, scorer in zip(rows, (Other("words"), Other("letters"), None), strict=True):
        row["metrics"] |= {"other": scorer(["abcd"], [[]]).row()} if scorer else {}
    _, body = metrics_table(rows, ["length", "other"])
    assert [line[1:3] for line in body] == [["toy", "other.unit words"], ["toy", "other.unit letters"], ["toy", ""]]
    assert labels(*rows) == ["toy"]


def test_rows_with_text_settings_are_told_from_new_rows() -> None:
    """Rows of older versions are compared with each other by their text, and never merged with new ones."""
    old = {key: value for key, value in make_row(Toy("toy", 4)).items() if key != "decoding"}
    linear, cosine = ({**old, "schedule": schedule, "candidates": 5} for schedule in ("Linear()", "Cosine()"))
    assert labels(linear, cosine) == ["toy, schedule Linear()", "toy, schedule Cosine()"]
    assert labels(linear, make_row(Toy("toy", 4))) == [
        "toy, decoding recorded as text",
        "toy, decoding tests.evaluation.test_settings.Toy",
    ]
    assert compared_settings(linear, ["length"])["decoding.candidates"] == 5


def test_rows_with_a_skipped_first_metric_are_not_merged_with_others() -> None:
    """The table of all metrics has a line for each setting, also where only the second metric has a value."""
    values = [(0, 10.0, 1.0), (5, None, 0.0)]
    rows = []
    for seed, (quality, bleu, rouge) in enumerate(values):
        row = make_row(Toy("toy", 4, Committing(window=quality), 1))
        skipped = {"value": None, "skipped": "needs x"}
        row["metrics"] = {
            "bleu": skipped if bleu is None else {"value": bleu, "signature": "s"},
            "rouge": {"value": rouge, "signature": "s"},
        }
        rows.append({**row, "seed": seed})
    assert len(group_rows(rows, "bleu", "rouge")) == 2
