"""Two generated languages; a seed gives the same text on every machine.

The source language ("Upland") is verb-final; adjectives and articles follow the noun, and adpositions follow their
phrase. In the target language ("Lowland") the verb follows the subject, articles and adjectives agree with the gender
and number of the noun, and verbs agree with the number of the subject.

A source has *many* correct translations, which makes the task interesting for parallel decoding: words have synonyms,
adjuncts come first or last, a clause is active or passive. A decoder that fills positions independently mixes
translations ("today the dog sees the cat today"); one that fills the most certain positions first does not.

    >>> [(source, (target,))] = ToyLanguage().pairs(1, seed=0)
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

Words = list[str]
Task = Callable[[Sequence["Clause"], random.Random, int], tuple[str, list[str]]]
"""``(clauses, rng, count) -> (source, targets)`` with ``count`` targets."""


@dataclass(frozen=True)
class Noun:
    """A noun: its source word, its target synonyms, and its target gender (0 or 1)."""

    source: str
    target: tuple[str, ...]
    gender: int


@dataclass(frozen=True)
class Phrase:
    """A noun with number, definiteness and adjectives (pairs of source word and target synonyms)."""

    noun: Noun
    plural: bool
    definite: bool
    adjectives: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Clause:
    """The meaning of a clause: subject, verb, object and adjuncts."""

    subject: Phrase
    verb: tuple[str, tuple[str, ...]]
    past: bool
    object: Phrase | None
    adjuncts: tuple[tuple[str, tuple[str, ...], Phrase | None], ...]  # adverb, or preposition with its phrase


@dataclass
class ToyLanguage:
    """The dictionary and the two grammars, determined by ``seed``."""

    seed: int = 0
    nouns: list[Noun] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        upland, lowland = _word_maker("ktpsmnr", "aiu", rng), _word_maker("bdgvlzf", "eoy", rng)

        def entries(count: int) -> list[tuple[str, tuple[str, ...]]]:
            """Return dictionary entries; every second one has two target words for its source word."""
            return [(upland(), tuple(lowland() for _ in range(1 + i % 2))) for i in range(count)]

        self.nouns = [Noun(source, target, i // 2 % 2) for i, (source, target) in enumerate(entries(16))]
        self.adjectives, self.adverbs, self.prepositions = entries(8), entries(4), entries(4)
        self.transitive, self.intransitive = entries(10), entries(6)
        self.plural_mark, self.definite_mark, self.past_mark, self.and_mark = (upland() for _ in range(4))
        self.articles = {key: lowland() for key in product((0, 1), (False, True), (False, True))}
        self.auxiliaries = {key: lowland() for key in product((False, True), (False, True))}
        self.by, self.conjunction, self.stop = lowland(), lowland(), "."
        self.who, self.what, self.query = lowland(), lowland(), "?"

    def pairs(
        self, count: int, seed: int, taken: set[str] | None = None, references: int = 1, task: Task | None = None
    ) -> list[tuple[str, list[str]]]:
        """Return ``count`` examples of a task, each a source with ``references`` targets.

        The default task is translation. No two examples have the same meaning, and none has a meaning in ``taken``,
        which is updated.
        """
        rng = random.Random(f"{self.seed}/{seed}")
        taken, task = set() if taken is None else taken, task or self.translation
        pairs: list[tuple[str, list[str]]] = []
        while len(pairs) < count:
            joined = rng.random() < 0.3
            clauses = [self._clause(rng, short=joined) for _ in range(1 + joined)]
            source, targets = task(clauses, rng, references)
            meaning = self.source(clauses)
            if meaning not in taken and all(4 <= len(text.split()) <= 24 for text in (source, *targets)):
                taken.add(meaning)
                pairs.append((source, targets))
        return pairs

    # Tasks: a source and ``count`` correct targets.

    def translation(self, clauses: Sequence[Clause], rng: random.Random, count: int) -> tuple[str, list[str]]:
        return self.source(clauses), [self.target(clauses, rng) for _ in range(count)]

    def paraphrase(self, clauses: Sequence[Clause], rng: random.Random, count: int) -> tuple[str, list[str]]:
        """Return a target sentence and paraphrases of it."""
        return self.target(clauses, rng), [self.target(clauses, rng) for _ in range(count)]

    def question(self, clauses: Sequence[Clause], rng: random.Random, count: int) -> tuple[str, list[str]]:
        """Return a target sentence and questions that it answers, about a subject or an object."""
        return self.target(clauses, rng), [self._question(rng.choice(clauses), rng) for _ in range(count)]

    def document(self, rng: random.Random, sentences: int) -> str:
        """Return target sentences about three nouns, so that sentences of one document depend on each other."""
        nouns = rng.sample(self.nouns, 3)
        return " ".join(self.target([self._clause(rng, short=True, nouns=nouns)], rng) for _ in range(sentences))

    def _phrase(
        self, rng: random.Random, adjectives: Sequence[int] = (0, 0, 1, 1, 2), nouns: Sequence[Noun] | None = None
    ) -> Phrase:
        chosen = rng.sample(self.adjectives, rng.choice(adjectives))
        return Phrase(rng.choice(nouns or self.nouns), rng.random() < 0.4, rng.random() < 0.5, tuple(chosen))

    def _clause(self, rng: random.Random, short: bool, nouns: Sequence[Noun] | None = None) -> Clause:
        """Draw a clause; ``short`` ones are for sentences of two clauses."""
        transitive = rng.random() < 0.75
        adjuncts: list[tuple[str, tuple[str, ...], Phrase | None]] = []
        if rng.random() < 0.6:
            adjuncts.append((*rng.choice(self.adverbs), None))
        if not short and rng.random() < 0.6:
            adjuncts.append((*rng.choice(self.prepositions), self._phrase(rng, adjectives=(0, 0, 1))))
        sizes = (0, 0, 1) if short else (0, 1, 1, 2)
        return Clause(
            subject=self._phrase(rng, sizes, nouns),
            verb=rng.choice(self.transitive if transitive else self.intransitive),
            past=rng.random() < 0.5,
            object=self._phrase(rng, sizes, nouns) if transitive else None,
            adjuncts=tuple(adjuncts),
        )

    # Source grammar: one sentence per meaning.

    def source(self, clauses: Sequence[Clause]) -> str:
        words = [self._source_clause(clause) for clause in clauses]
        return " ".join([*_join(words, [self.and_mark]), self.stop])

    def _source_clause(self, clause: Clause) -> Words:
        words = self._source_phrase(clause.subject)
        for word, _, phrase in clause.adjuncts:
            words += [*(self._source_phrase(phrase) if phrase else []), word]
        words += self._source_phrase(clause.object) if clause.object else []
        return [*words, clause.verb[0], *([self.past_mark] if clause.past else [])]

    def _source_phrase(self, phrase: Phrase) -> Words:
        marks = [self.plural_mark] * phrase.plural + [self.definite_mark] * phrase.definite
        return [phrase.noun.source, *(source for source, _ in phrase.adjectives), *marks]

    # Target grammar: draws one of the sentences with a meaning.

    def target(self, clauses: Sequence[Clause], rng: random.Random) -> str:
        """Draw one of the correct translations."""
        words = [self._target_clause(clause, rng) for clause in clauses]
        return " ".join([*_join(words, [self.conjunction]), self.stop])

    def _target_clause(self, clause: Clause, rng: random.Random) -> Words:
        verb = rng.choice(clause.verb[1])
        subject = self._target_phrase(clause.subject, rng)
        if clause.object is None:
            core = [*subject, verb + _ending(clause.subject.plural, clause.past)]
        elif rng.random() < 0.5:
            core = [
                *subject,
                verb + _ending(clause.subject.plural, clause.past),
                *self._target_phrase(clause.object, rng),
            ]
        else:  # passive: the object comes first and the auxiliary agrees with it
            auxiliary = self.auxiliaries[clause.object.plural, clause.past]
            core = [*self._target_phrase(clause.object, rng), auxiliary, verb + "t", self.by, *subject]
        front: Words = []
        adjuncts = [self._adjunct(*adjunct, rng) for adjunct in clause.adjuncts]
        rng.shuffle(adjuncts)
        if adjuncts and rng.random() < 0.5:
            front = adjuncts.pop()
        return front + core + [word for adjunct in adjuncts for word in adjunct]

    def _question(self, clause: Clause, rng: random.Random) -> str:
        verb = rng.choice(clause.verb[1])
        adjuncts = [word for adjunct in clause.adjuncts for word in self._adjunct(*adjunct, rng)]
        if clause.object is not None and rng.random() < 0.5:  # the auxiliary agrees with the object
            auxiliary = self.auxiliaries[clause.object.plural, clause.past]
            words = [self.what, auxiliary, verb + "t", self.by, *self._target_phrase(clause.subject, rng)]
        else:
            acts = verb + _ending(clause.subject.plural, clause.past)
            words = [self.who, acts, *(self._target_phrase(clause.object, rng) if clause.object else [])]
        return " ".join([*words, *adjuncts, self.query])

    def _adjunct(self, _: str, synonyms: tuple[str, ...], phrase: Phrase | None, rng: random.Random) -> Words:
        return [rng.choice(synonyms), *(self._target_phrase(phrase, rng) if phrase else [])]

    def _target_phrase(self, phrase: Phrase, rng: random.Random) -> Words:
        noun, ending = phrase.noun, "sh" if phrase.plural else ""
        adjectives = [rng.choice(target) + ("a", "i")[noun.gender] + ending for _, target in phrase.adjectives]
        article = self.articles[noun.gender, phrase.plural, phrase.definite]
        return [article, *adjectives, rng.choice(noun.target) + ending]


def _ending(plural: bool, past: bool) -> str:
    return {(False, False): "n", (True, False): "nt", (False, True): "k", (True, True): "kt"}[plural, past]


def _join(parts: Sequence[Words], link: Words) -> Words:
    joined = list(parts[0])
    for part in parts[1:]:
        joined += link + part
    return joined


def _word_maker(consonants: str, vowels: str, rng: random.Random) -> Callable[[], str]:
    """Return a function that makes a new two-syllable word at every call."""
    syllables = ["".join(pair) for pair in product(consonants, vowels)]
    words = ["".join(pair) for pair in product(syllables, syllables)]
    rng.shuffle(words)
    return words.pop
