"""The generated language is deterministic and well formed."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from rdm.data import toy_words
from rdm.data.toy import ToyLanguage, ToyQuestions, ToyTranslation
from rdm.data.toy_language import Clause
from tests.data.helpers import draw_clauses, has_noun

FIRST_SOURCE = "da kinde grosse kluge da hausen leeren nah ei voglen alten jagte ."
FIRST_TARGET = "an old bird was chased by the large smart kid near the vacant house ."


def test_the_dictionary_is_consistent() -> None:
    """No word has two meanings; every second entry has synonyms; no English word is also a source word."""
    groups = [
        (toy_words.ANIMALS + toy_words.PEOPLE + toy_words.PLACES, 24, 12),
        (toy_words.ADJECTIVES, 8, 4),
        (toy_words.PLACE_ADJECTIVES, 4, 2),
        (toy_words.ADVERBS, 4, 2),
        (toy_words.PREPOSITIONS, 4, 2),
        (toy_words.TRANSITIVE, 10, 5),
        (toy_words.INTRANSITIVE, 6, 3),
    ]
    for group, size, ambiguous in groups:
        assert len(group) == size
        assert sum(len(entry.target) == 2 for entry in group) == ambiguous
    every = {entry for group, *_ in groups for entry in group}
    sources = [entry.source for entry in every]
    targets = [word for entry in every for word in entry.target]
    assert len(set(sources)) == len(sources)
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize(
    ("function", "forms"),
    [
        (toy_words.plural, "dog dogs,child children,thief thieves,uncle uncles,office offices,house houses"),
        (toy_words.with_s, "see sees,wash washes,cry cries,carry carries,chase chases"),
        (toy_words.past, "see saw,carry carried,love loved,spot spotted,sleep slept,jump jumped"),
        (toy_words.participle, "see seen,know known,hear heard,wash washed,chase chased"),
    ],
)
def test_english_forms(function: Callable[[str], str], forms: str) -> None:
    for pair in forms.split(","):
        word, form = pair.split()
        assert function(word) == form


def test_text_does_not_depend_on_the_process() -> None:
    """String hashes differ from process to process; no draw may depend on them."""
    command = "from rdm.data.toy import ToyQuestions; print(ToyQuestions(60, 20, 20).read('train'))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", command], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {f"{ToyQuestions(60, 20, 20).read('train')}\n".encode()}


def test_text_depends_on_the_seed() -> None:
    assert ToyLanguage(0).pairs(50, seed=3) == ToyLanguage(0).pairs(50, seed=3)
    assert ToyLanguage(0).pairs(50, seed=3) != ToyLanguage(0).pairs(50, seed=4)
    assert ToyLanguage(0).pairs(50, seed=3) != ToyLanguage(1).pairs(50, seed=3)


def test_known_text() -> None:
    """The default text is the same on every machine and in every release."""
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


def test_many_translations_of_one_source() -> None:
    language = ToyLanguage()
    variety = []
    for seed in range(30):
        sentence = draw_clauses(language, seed)
        variety.append(len({language.target(sentence, random.Random(i)) for i in range(50)}))
    assert sum(count > 3 for count in variety) > 20


def test_agreement() -> None:
    """The article, the noun and the verb agree in every translation of a clause without object."""
    language = ToyLanguage()
    seen = set()
    for seed in range(300):
        (clause,) = draw_clauses(language, seed)
        if clause.object is not None or clause.adjuncts:
            continue
        subject, past = clause.subject, clause.past
        for draw in range(5):
            article, *adjectives, noun, verb, stop = language.target([clause], random.Random(draw)).split()
            vowel = [*adjectives, noun][0][0] in "aeiou"
            indefinite = "some" if subject.plural else "an" if vowel else "a"
            assert article == ("the" if subject.definite else indefinite)
            assert all(word in entry.target for word, entry in zip(adjectives, subject.adjectives, strict=True))
            assert noun in (
                [toy_words.plural(word) for word in subject.noun.target] if subject.plural else subject.noun.target
            )
            verbs = {word: word if subject.plural else toy_words.with_s(word) for word in clause.verb.target}
            assert verb in ([toy_words.past(word) for word in clause.verb.target] if past else verbs.values())
            assert stop == "."
            seen.add((article, past))
    assert {article for article, _ in seen} == {"the", "some", "a", "an"}


def test_passive_agrees_with_the_object() -> None:
    language = ToyLanguage()
    auxiliaries = {(False, False): "is", (True, False): "are", (False, True): "was", (True, True): "were"}
    seen = set()
    for seed in range(300):
        (clause,) = draw_clauses(language, seed)
        if clause.object is None or clause.adjuncts:
            continue
        for draw in range(5):
            found = re.fullmatch(
                r"(.*) (is|are|was|were) (\w+) by (.*) \.", language.target([clause], random.Random(draw))
            )
            if found:
                assert found[2] == auxiliaries[clause.object.plural, clause.past]
                assert found[3] in [toy_words.participle(word) for word in clause.verb.target]
                assert has_noun(found[1].split(), clause.object.noun.target)
                assert has_noun(found[4].split(), clause.subject.noun.target)
                seen.add(found[2])
    assert seen == set(auxiliaries.values())


def test_source_is_verb_final_and_inflected() -> None:
    language = ToyLanguage()
    for seed in range(20):
        (clause,) = draw_clauses(language, seed)
        *words, verb, stop = language.source([clause]).split()
        assert stop == "."
        assert verb == clause.verb.source + ("te" if clause.past else "t")
        ending = "i" if clause.subject.plural else "e"
        assert words[0] == ("da" if clause.subject.definite else "ei")
        assert words[1] == clause.subject.noun.source + ending
        assert words[2 : 2 + len(clause.subject.adjectives)] == [
            adjective.source + ending for adjective in clause.subject.adjectives
        ]
        if clause.object:
            stem = (clause.object.adjectives or (clause.object.noun,))[-1]
            assert words[-1] == stem.source + ("in" if clause.object.plural else "en")


def test_one_source_has_one_meaning() -> None:
    """Different meanings have different source sentences, so that a source can be understood."""
    language, rng = ToyLanguage(), random.Random(0)
    meanings: dict[str, Clause] = {}
    for _ in range(20_000):
        clause = language._clause(rng, short=True)
        assert meanings.setdefault(language.source([clause]), clause) == clause
