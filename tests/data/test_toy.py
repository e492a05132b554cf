"""The generated language is deterministic, well formed, and has several correct translations of a sentence."""

import random

import pytest

from rdm.data.toy import ToyLanguage, ToyTranslation
from rdm.errors import UserError

FIRST_SOURCE = "rasi naki kisi karu mapa papi nuni sara papi kisi susi mipi ."
FIRST_TARGET = "vyve bovysh zyve fevot goge bybo dozyi dygo zole febe gedyash fefosh ."


def test_same_seed_same_text() -> None:
    assert ToyLanguage(0).pairs(50, seed=3) == ToyLanguage(0).pairs(50, seed=3)
    assert ToyLanguage(0).pairs(50, seed=3) != ToyLanguage(0).pairs(50, seed=4)
    assert ToyLanguage(0).pairs(50, seed=3) != ToyLanguage(1).pairs(50, seed=3)


def test_known_text() -> None:
    """The default text is the same on every machine and in every release; change this test only on purpose."""
    assert ToyLanguage().pairs(1, seed=0) == [(FIRST_SOURCE, [FIRST_TARGET])]


def test_lengths_and_vocabulary() -> None:
    pairs = [(source, target) for source, (target,) in ToyLanguage().pairs(3000, seed=0)]
    for side in zip(*pairs, strict=True):
        lengths = [len(text.split()) for text in side]
        assert min(lengths) >= 4
        assert max(lengths) <= 24
        assert max(lengths) > 16
    sources, targets = ({word for text in side for word in text.split()} for side in zip(*pairs, strict=True))
    assert 40 < len(sources) < 200
    assert 150 < len(targets) < 400
    assert sources & targets == {"."}


def test_splits_share_no_source() -> None:
    data = ToyTranslation(train_size=2000, valid_size=200, test_size=200)
    splits = [set(data.read(split)[0]) for split in ("train", "valid", "test")]
    assert [len(split) for split in splits] == [2000, 200, 200]
    assert len(set.union(*splits)) == 2400


def test_split_does_not_depend_on_the_size_of_training() -> None:
    """A longer training text leaves the test set as it was."""
    small, large = ToyTranslation(train_size=10), ToyTranslation(train_size=500)
    assert small.read("test") == large.read("test")
    assert small.read("valid") == large.read("valid")


def clauses(language: ToyLanguage, seed: int):  # type: ignore[no-untyped-def]
    return [language._clause(random.Random(seed), short=False)]


def test_many_translations_of_one_source() -> None:
    language = ToyLanguage()
    variety = []
    for seed in range(30):
        sentence = clauses(language, seed)
        variety.append(len({language.target(sentence, random.Random(i)) for i in range(50)}))
    assert sum(count > 3 for count in variety) > 20


def test_agreement() -> None:
    """The article, adjective ending and verb ending follow the noun in every translation."""
    language = ToyLanguage()
    checked = 0
    for seed in range(200):
        (clause,) = clauses(language, seed)
        if clause.object is not None or clause.adjuncts:
            continue
        for draw in range(5):
            article, *adjectives, noun, verb, _ = language.target([clause], random.Random(draw)).split()
            gender, plural = clause.subject.noun.gender, clause.subject.plural
            assert article == language.articles[gender, plural, clause.subject.definite]
            assert all(word.endswith(("a", "i")[gender] + "sh" * plural) for word in adjectives)
            assert noun.endswith("sh") == plural
            assert verb.endswith(
                {(False, False): "n", (True, False): "nt", (False, True): "k", (True, True): "kt"}[plural, clause.past]
            )
            checked += 1
    assert checked > 10


def test_source_is_verb_final() -> None:
    language = ToyLanguage()
    for seed in range(20):
        (clause,) = clauses(language, seed)
        words = language.source([clause]).split()
        assert words[-1] == "."
        assert words[-2 - clause.past] == clause.verb[0]


def test_empty_split_is_refused() -> None:
    with pytest.raises(UserError, match="every split needs an example"):
        ToyTranslation(valid_size=0)
