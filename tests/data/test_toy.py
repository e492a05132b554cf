"""The generated language is deterministic and well formed; so are the generated corpora."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rdm.data import toy_words
from rdm.data.corpus import Corpus
from rdm.data.toy import ToyLanguage, ToyPairs, ToyParaphrase, ToyQuestions, ToyText, ToyTranslation
from rdm.data.toy_language import Clause
from rdm.errors import UserError

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
    """The article, the noun and the verb agree in every translation of a clause without object."""
    language = ToyLanguage()
    seen = set()
    for seed in range(300):
        (clause,) = clauses(language, seed)
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
        (clause,) = clauses(language, seed)
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
        (clause,) = clauses(language, seed)
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


# Corpora.

PAIRS = [ToyTranslation, ToyQuestions, ToyParaphrase]
FAMILIES = [*PAIRS, ToyText]
SPLITS = ("train", "valid", "test")
SIZES = {"train_size": 60, "valid_size": 20, "test_size": 20}


def read_all(corpus: Corpus, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    return {split: corpus.read(split) for split in splits}  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_text_depends_on_the_arguments_alone(family: type[Any]) -> None:
    """Not on the order in which splits are read, nor on earlier reads."""
    first = read_all(family(**SIZES))
    assert read_all(family(**SIZES), SPLITS[::-1]) == first
    corpus = family(**SIZES)
    assert read_all(corpus) == read_all(corpus) == first
    assert read_all(family(**SIZES, seed=1)) != first


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes(family: type[Any]) -> None:
    corpus = family(train_size=31, valid_size=5, test_size=7)
    columns = 1 if family is ToyText else 2
    assert [[len(column) for column in corpus.read(split)] for split in SPLITS] == [[n] * columns for n in (31, 5, 7)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_larger_training_split_begins_with_the_smaller_one(family: type[Any]) -> None:
    small, large = family(**SIZES), family(**{**SIZES, "train_size": 90})
    for split in ("valid", "test"):
        assert small.read(split) == large.read(split)
    for few, more in zip(small.read("train"), large.read("train"), strict=True):
        assert more[:60] == few


@pytest.mark.parametrize("family", FAMILIES)
def test_fingerprints_depend_on_the_arguments(family: type[Any]) -> None:
    first = family(**SIZES)
    prints = {first.fingerprint(split) for split in SPLITS}
    assert len(prints) == 3
    first.read("train")  # drawing text does not change the fingerprint
    assert {first.fingerprint(split) for split in SPLITS} == {family(**SIZES).fingerprint(split) for split in SPLITS}
    for other in ({"seed": 1}, {"train_size": 61}):
        assert family(**{**SIZES, **other}).fingerprint("train") not in prints
    assert len({each(**SIZES).fingerprint("train") for each in FAMILIES}) == 4


@pytest.mark.parametrize("family", PAIRS)
def test_references(family: type[ToyPairs]) -> None:
    """``references`` of them in validation and test, the target of the split first; one in training."""
    corpus = family(**SIZES, references=4)
    for split, count in (("train", 1), ("valid", 4), ("test", 4)):
        references = corpus.references(split)  # type: ignore[arg-type]
        assert len(references) == count
        assert references[0] == corpus.read(split)[1]  # type: ignore[arg-type]
        assert all(len(side) == corpus.sizes[split] for side in references)
    assert any(len(set(texts)) > 1 for texts in zip(*corpus.references("test"), strict=True))


class Spy(ToyLanguage):
    """Records the meaning of every example."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.meanings: dict[tuple[str, ...], tuple[Clause, ...]] = {}

    def spied(self, name: str) -> Any:
        task = getattr(super(), name)

        def wrapped(clauses: Sequence[Clause], rng: random.Random, count: int) -> tuple[str, list[str]]:
            source, targets = task(clauses, rng, count)
            self.meanings[(source, *targets)] = tuple(clauses)
            return source, targets

        return wrapped

    @property
    def translation(self) -> Any:  # type: ignore[override]
        return self.spied("translation")

    @property
    def question(self) -> Any:  # type: ignore[override]
        return self.spied("question")

    @property
    def paraphrase(self) -> Any:  # type: ignore[override]
        return self.spied("paraphrase")


Meant = dict[str, list[tuple[str, list[str], tuple[Clause, ...]]]]


def meant(family: type[ToyPairs], **options: Any) -> tuple[Spy, Meant]:
    """Return every example of every split with its clauses."""
    corpus = family(**{**SIZES, **options})
    corpus._language = language = Spy(0)
    return language, {
        split: [
            (source, targets, language.meanings[(source, *targets)])
            for source, targets in corpus.drawn(split)  # type: ignore[arg-type]
        ]
        for split in SPLITS
    }


@pytest.mark.parametrize("family", PAIRS)
def test_splits_share_no_meaning(family: type[ToyPairs]) -> None:
    language, splits = meant(family, train_size=3000, valid_size=300, test_size=300)
    meanings = [language.source(clauses) for examples in splits.values() for *_, clauses in examples]
    assert len(meanings) == 3600
    assert len(set(meanings)) == 3600


def forms(language: ToyLanguage, clauses: Sequence[Clause]) -> set[str]:
    """Return the words that target sentences with this meaning have, by drawing many of them."""
    return {word for seed in range(60) for word in language.target(clauses, random.Random(seed)).split()}


def singular(clause: Clause) -> Clause:
    """The clause whose persons are one each: the verb after *who* is singular."""
    parts = {
        name: replace(part, plural=False)
        for name in ("subject", "object")
        if (part := getattr(clause, name)) is not None and part.noun.person
    }
    return replace(clause, **parts)


QUESTION = re.compile(r"(who|which animal|which animals) (.*) \?")


def test_questions_consist_of_words_of_the_statement() -> None:
    """Question words, then words of some sentence with the meaning of the statement."""
    language, splits = meant(ToyQuestions)
    question_words = set()
    for statement, questions, clauses in splits["test"]:
        known = forms(language, clauses)
        assert set(statement.split()) <= known
        assert statement.endswith(" .")
        known |= forms(language, [singular(clause) for clause in clauses])
        for question in questions:
            found = QUESTION.fullmatch(question)
            assert found
            assert set(found[2].split()) <= known
            question_words.add(found[1])
    assert question_words == {"who", "which animal", "which animals"}


def test_questions_leave_out_their_answer() -> None:
    """The subject is missing from an active question, the object from a passive one."""
    language = ToyLanguage()
    asked_for = set()
    for seed in range(150):
        (clause,) = clauses(language, seed)
        if clause.object is None or clause.adjuncts or clause.object.noun == clause.subject.noun:
            continue
        found = QUESTION.fullmatch(language._question(clause, random.Random(seed)))
        assert found
        words = found[2].split()
        named = {part for part in (clause.subject, clause.object) if has_noun(words, part.noun.target)}
        passive = "by" in words
        answer = clause.object if passive else clause.subject
        assert named == {clause.subject if passive else clause.object}
        assert found[1] == ("who" if answer.noun.person else "which animals" if answer.plural else "which animal")
        several = answer.plural and not answer.noun.person
        if passive:
            assert words[0] == (("was", "were") if clause.past else ("is", "are"))[several]
        asked_for.add((found[1], passive))
    assert len(asked_for) == 6


def has_noun(words: Iterable[str], synonyms: Iterable[str]) -> bool:
    return any(word in (noun, toy_words.plural(noun)) for word in words for noun in synonyms)


def test_paraphrases_have_the_same_meaning() -> None:
    language, splits = meant(ToyParaphrase)
    same = total = 0
    for source, targets, clauses in [*splits["valid"], *splits["test"]]:
        known = forms(language, clauses)
        for text in (source, *targets):
            assert set(text.split()) <= known
            assert text.endswith(" .")
        same += sum(text == source for text in targets)
        total += len(targets)
    assert 0 < same < total / 3


def test_documents_are_about_three_nouns() -> None:
    corpus = ToyText(**SIZES)
    counts = []
    for document in corpus.read("train")[0]:
        words = document.split()
        nouns = [noun for noun in toy_words.ANIMALS + toy_words.PEOPLE if has_noun(words, noun.target)]
        assert 1 <= len(nouns) <= 3
        counts.append(len(nouns))
        assert 4 <= words.count(".") <= 12
        assert words[-1] == "."
    assert counts.count(3) > 30
    assert len({document.count(" .") for document in corpus.read("train")[0]}) > 4


def test_documents_of_the_splits_differ() -> None:
    corpus = ToyText(**SIZES)
    documents = [document for split in SPLITS for document in corpus.read(split)[0]]  # type: ignore[arg-type]
    assert len(set(documents)) == 100


@pytest.mark.parametrize("family", FAMILIES)
def test_empty_split_is_refused(family: type[Any]) -> None:
    with pytest.raises(UserError, match="every split needs at least one example"):
        family(valid_size=0)


@pytest.mark.parametrize("family", PAIRS)
def test_no_references_are_refused(family: type[ToyPairs]) -> None:
    with pytest.raises(UserError, match=r"data\.corpus\.references must be at least 1, got 0"):
        family(references=0)
