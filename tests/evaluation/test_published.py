"""The paper's numbers: counts, checksums, spot checks, and which result rows they match."""

from collections import Counter
from functools import cache

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from rdm.evaluation.published import DECODINGS, Published, published, published_value
from rdm.evaluation.results import Row
from tests.configs import CONF

NUMBERS = {
    "tb:mt": 75,  # 2 x 5 iterations x 2 x 3 data sets, and 15 of other systems
    "tb:ablation:reweighting": 6,
    "tb:qp_and_qqp": 80,
    "app:tb:qp_and_qqp_sample_size": 32,  # without those repeated from the table before
    "app:tb:sacreBLEU_COMET": 15,
    "app:tb:ablation:conditioned_training": 8,
    "app:tb:cmlm_runtime": 24,
    "app:tb:wikitext": 21,
}
SUMS = {
    "tb:ablation:reweighting": 186.23,
    "app:tb:ablation:conditioned_training": 234.71,
    "app:tb:cmlm_runtime": 617.78,
}


def test_count_of_numbers_per_table() -> None:
    assert Counter(number.table for number in published()) == NUMBERS


@pytest.mark.parametrize(("table", "total"), SUMS.items())
def test_sums_of_tables(table: str, total: float) -> None:
    """Sums computed from the LaTeX source of the paper."""
    assert sum(number.value for number in published() if number.table == table) == pytest.approx(total)


def test_conditions_of_a_table_are_unique() -> None:
    seen = Counter()
    for number in published():
        assert {"data", "system"} <= number.conditions.keys()
        assert number.conditions.get("decoding", "vanilla") in DECODINGS
        assert "metric" not in number.conditions
        seen[number.table, number.metric, *map(str, sorted(number.conditions.items()))] += 1
    assert max(seen.values()) == 1, seen.most_common(1)


def test_overlapping_tables_agree() -> None:
    """One system, data set, number of iterations and metric has one value in all tables."""
    values: dict[tuple[object, ...], set[float]] = {}
    for number in published():
        conditions = number.conditions
        if conditions.keys() <= {"data", "system", "iterations", "decoding", "batch_size"} and conditions.get(
            "iterations"
        ):
            key = (number.metric, conditions["data"], conditions["system"], conditions["iterations"])
            values.setdefault(key, set()).add(number.value)
    assert all(len(found) == 1 for found in values.values())


def make_row(**more: object) -> dict[str, object]:
    return {"split": "test", "strategy": "rdm", "candidates": 5, **more}


def test_every_published_system_can_be_trained() -> None:
    """Each row of the tables on translation, questions and open-ended text is an experiment of the same name."""
    for number in published():
        assert (CONF / "experiment" / f"{experiment(number)}.yaml").is_file()


FOLDERS = {"iwslt14_de_en": "iwslt14", "wmt14_en_de": "wmt14", "wmt16_en_ro": "wmt16"}


def experiment(number: Published) -> str:
    data, system = number.conditions["data"], number.conditions["system"]
    return f"{FOLDERS.get(data, data)}/{system.removesuffix('_lm')}"


def overrides(number: Published) -> list[str]:
    """The experiment of a number on the published files, with what its table changes."""
    conditions = number.conditions
    chosen = [f"experiment={experiment(number)}"]
    if conditions["data"] in FOLDERS:
        chosen.append("data/tokenizer=pretokenized")
    if "reweighting" in conditions:
        chosen += [f"reweighting={conditions['reweighting']}", f"decoding={RDM_DECODINGS[conditions['decoding']]}"]
    if "conditioned" in conditions:
        chosen.append(f"diffusion/pairing={'conditioned' if conditions['conditioned'] else 'single'}")
    if conditions["system"] == "diffuseq":
        chosen.append("decoding=diffuseq_mbr")
    if "candidates" in conditions:
        chosen.append(f"decoding.samples={conditions['candidates']}")
    return chosen


RDM_DECODINGS = {"vanilla": "vanilla", "improved": "rdm_cond"}


@cache
def run_row(*overrides: str) -> Row:
    """What a result row of a run says about its system and its decoding."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("train", list(overrides), return_hydra_config=True)
    decoding = instantiate(composed.decoding)
    return {
        "split": "test",
        "data": composed.data.name,
        "system": composed.name,
        "choices": dict(composed.hydra.runtime.choices),
        "strategy": decoding.name,
        "steps": decoding.steps,
        "candidates": decoding.candidates,
        "batch_size": 50,
    }


@pytest.mark.slow
@pytest.mark.parametrize("table", NUMBERS)
def test_every_number_is_shown_beside_the_row_of_its_experiment(table: str) -> None:
    """The run of the experiment with the number's name, decoded in as many iterations, agrees with it."""
    for number in (number for number in published() if number.table == table):
        row = run_row(*overrides(number))
        found = published_value({**row, "steps": number.conditions.get("iterations") or row["steps"]}, number.metric)
        if number.conditions["system"] == "diffuseq" and "candidates" not in number.conditions:
            assert found != number  # printed without iterations and samples: the table of samples has both
        else:
            assert found is not None, number
            assert found.value == number.value, number


@pytest.mark.parametrize(
    ("row", "metric", "value"),
    [
        ({"data": "wmt14_en_de", "system": "rdm_absorbing", "steps": 25}, "tokenized_bleu", 27.59),
        ({"data": "wmt16_en_ro", "system": "multinomial", "steps": 4, "strategy": "vanilla"}, "tokenized_bleu", 27.81),
        ({"data": "wmt14_en_de", "system": "rdm_multinomial", "steps": 16}, "sacrebleu", 24.2),
        ({"data": "wmt14_en_de", "system": "cmlm", "steps": 4, "strategy": "mask_predict"}, "tokenized_bleu", 22.91),
        ({"data": "iwslt14_de_en", "system": "cmlmc", "steps": 10, "strategy": "repredict"}, "tokenized_bleu", 34.28),
        ({"data": "iwslt14_de_en", "system": "cmlmc", "steps": 4, "strategy": "repredict"}, "tokenized_bleu", None),
        (
            {"data": "wmt16_en_ro", "system": "cmlm_smart", "steps": 10, "strategy": "repredict"},
            "tokenized_bleu",
            32.71,
        ),
        ({"data": "wmt14_en_de", "system": "levt", "steps": 10, "strategy": "levenshtein"}, "tokenized_bleu", 25.20),
        ({"data": "wmt14_en_de", "system": "disco", "steps": 10, "strategy": "easy_first"}, "tokenized_bleu", 25.64),
        ({"data": "wmt14_en_de", "system": "cdcd", "steps": 200, "strategy": "cdcd_mbr"}, "tokenized_bleu", 20.0),
        ({"data": "wmt14_en_de", "system": "cdcd", "steps": 20, "strategy": "cdcd"}, "tokenized_bleu", None),
        ({"data": "qg", "system": "levt", "steps": 10, "strategy": "levenshtein"}, "rouge_l", 0.2893),
        ({"data": "qg", "system": "gpt2_base", "steps": None, "strategy": "beam"}, "rouge_l", 0.2714),
        ({"data": "qqp", "system": "gpt2_large", "steps": None, "strategy": "beam"}, "rouge_l", 0.5415),
        ({"data": "qqp", "system": "gpvae_t5", "steps": None, "strategy": "beam"}, "rouge_l", 0.5886),
        ({"data": "iwslt14_de_en", "system": "ar", "steps": None, "strategy": "beam"}, "tokenized_bleu", 34.51),
        (
            {"data": "qqp", "system": "rdm_absorbing", "steps": 10, "candidates": 10, "strategy": "mbr"},
            "rouge_l",
            0.5945,
        ),
        (
            {"data": "qqp", "system": "rdm_absorbing", "steps": 10, "candidates": 1, "strategy": "mbr"},
            "rouge_l",
            0.5789,
        ),
        ({"data": "qg", "system": "multinomial", "steps": 10, "candidates": 10}, "dist_1", 0.8990),
        ({"data": "wikitext103", "system": "rdm_absorbing", "steps": 100}, "coherence", -5.15),
        ({"data": "wikitext103", "system": "ar_lm", "steps": None, "strategy": "left_to_right"}, "mauve", 95.71),
        ({"data": "wmt14_en_de", "system": "cmlm", "steps": 4, "batch_size": 50}, "seconds", 17.1),
        ({"data": "wmt14_en_de", "system": "cmlm", "steps": 4, "batch_size": 32}, "seconds", None),
        ({"data": "qqp", "system": "rdm_absorbing", "steps": 10, "candidates": 3}, "rouge_l", None),
        (
            {"data": "iwslt14_de_en", "system": "rdm_absorbing", "steps": 10, "strategy": "vanilla"},
            "tokenized_bleu",
            None,
        ),
    ],
)
def test_spot_checks(row: dict[str, object], metric: str, value: float | None) -> None:
    found = published_value(make_row(**row), metric)
    assert (found.value if found else None) == value


def test_tokenized_bleu_needs_the_published_tokenization() -> None:
    """Another tokenizer splits text into other words."""
    choices = {"reweighting": "linear", "diffusion/pairing": "conditioned"}
    row = make_row(data="iwslt14_de_en", system="rdm_absorbing", steps=10)
    for tokenizer, shown in (("pretokenized", True), ("bpe", False)):
        found = published_value({**row, "choices": {**choices, "data/tokenizer": tokenizer}}, "tokenized_bleu")
        assert (found is not None) == shown


@pytest.mark.parametrize(
    ("system", "strategy", "reweighting", "pairing", "value"),
    [
        ("rdm_absorbing", "rdm_cond", "linear", "conditioned", 33.91),
        ("rdm_absorbing", "rdm_cond", "original", "conditioned", 30.64),
        ("rdm_absorbing", "vanilla", "constant", "conditioned", 29.75),
        ("rdm_absorbing", "rdm", "linear", "single", 33.73),
        ("rdm_absorbing", "vanilla", "linear", "conditioned", 31.04),
        ("rdm_absorbing", "vanilla", "linear", "single", None),
        ("rdm_absorbing", "rdm", "original", "single", None),  # no table has both changes
        ("rdm_multinomial", "rdm", "linear", "single", 31.99),
        ("rdm_multinomial", "rdm", "constant", "conditioned", None),
        ("absorbing", "vanilla", "original", "conditioned", 29.67),
        ("absorbing", "vanilla", "original", "single", 28.32),
        ("multinomial", "vanilla", "linear", "conditioned", 23.58),
    ],
)
def test_numbers_of_ablations(system: str, strategy: str, reweighting: str, pairing: str, value: float | None) -> None:
    """A row is compared with the number of its own training settings."""
    choices = {"reweighting": reweighting, "diffusion/pairing": pairing}
    row = make_row(data="iwslt14_de_en", system=system, steps=10, strategy=strategy, choices=choices)
    found = published_value(row, "tokenized_bleu")
    assert (found.value if found else None) == value
