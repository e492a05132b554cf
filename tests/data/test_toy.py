"""The generated language is deterministic and well formed; so are the generated corpora."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rdm.data.corpus import Corpus
from rdm.data.toy import ToyLanguage, ToyPairs, ToyParaphrase, ToyQuestions, ToyText, ToyTranslation
from rdm.data.toy_language import Clause
from rdm.errors import UserError

FIRST_SOURCE = "rasi naki kisi karu mapa papi nuni sara papi kisi susi mipi ."
FIRST_TARGET = "vyve bovysh zyve fevot goge bybo dozyi dygo zole febe gedyash fefosh ."


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

    def __post_init__(self) -> None:
        super().__post_init__()
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


def test_questions_consist_of_words_of_the_statement() -> None:
    """A question word, then words of some sentence with the meaning of the statement."""
    language, splits = meant(ToyQuestions)
    question_words = set()
    for statement, questions, clauses in splits["test"]:
        known = forms(language, clauses)
        assert set(statement.split()) <= known
        assert statement.endswith(f" {language.stop}")
        for question in questions:
            first, *words, last = question.split()
            assert last == "?"
            assert first in (language.who, language.what)
            assert set(words) <= known
            question_words.add(first)
    assert question_words == {language.who, language.what}


def test_questions_leave_out_their_answer() -> None:
    """In a simple clause the subject is missing after *who*, and the object after *what*."""
    language = ToyLanguage()
    checked = 0
    for seed in range(60):
        (clause,) = clauses(language, seed)
        if clause.object is None or clause.adjuncts or clause.object.noun == clause.subject.noun:
            continue
        question = language._question(clause, random.Random(seed)).split()
        named = {part for part in (clause.subject, clause.object) if has_noun(question, part.noun.target)}
        assert named == {clause.object if question[0] == language.who else clause.subject}
        checked += 1
    assert checked > 5


def has_noun(words: Iterable[str], synonyms: Iterable[str]) -> bool:
    return any(word in (noun, noun + "sh") for word in words for noun in synonyms)


def test_paraphrases_have_the_same_meaning() -> None:
    language, splits = meant(ToyParaphrase)
    same = total = 0
    for source, targets, clauses in [*splits["valid"], *splits["test"]]:
        known = forms(language, clauses)
        for text in (source, *targets):
            assert set(text.split()) <= known
            assert text.endswith(f" {language.stop}")
        same += sum(text == source for text in targets)
        total += len(targets)
    assert 0 < same < total / 3


def test_documents_are_about_three_nouns() -> None:
    corpus = ToyText(**SIZES)
    counts = []
    for document in corpus.read("train")[0]:
        words = document.split()
        nouns = [noun for noun in corpus._language.nouns if has_noun(words, noun.target)]
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
