"""The generated corpora: sizes, splits, references, questions, paraphrases and documents."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rdm.data import toy_words
from rdm.data.corpus import Corpus
from rdm.data.toy import ToyLanguage, ToyPairs, ToyParaphrase, ToyQuestions, ToyText, ToyTranslation
from rdm.data.toy_language import Clause
from rdm.errors import UserError
from tests.data.helpers import draw_clauses, has_noun

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
        (clause,) = draw_clauses(language, seed)
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
