"""Two generated languages, pseudo-German and simple English; a seed gives the same text on every machine.

The source language is a regular pseudo-German. The verb comes last, adjectives follow the noun, and what is a
preposition in English follows its phrase. Nouns and adjectives end in ``-e`` (one) or ``-i`` (several), followed by
``-n`` unless they belong to the subject. Verbs end in ``-t`` (present) or ``-te`` (past). The target language is
English: verbs agree with the number of the subject, and *a* or *an* depends on the next word.

    da hunde alte heut ei katzin seht .     the dog old today some cats sees
    the old dog sees some cats today .      some cats are spotted by the old hound today .   ...

A source has *many* correct translations, which makes the task interesting for parallel decoding: words have synonyms,
adjuncts come first or last, a clause is active or passive. A decoder that fills positions independently mixes
translations ("today the dog sees the cat today"); one that fills the most certain positions first does not.

    >>> [(source, (target,))] = ToyLanguage().pairs(1, seed=0)
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rdm.data import toy_words
from rdm.data.toy_words import Entry, Noun

Words = list[str]
Task = Callable[[Sequence["Clause"], random.Random, int], tuple[str, list[str]]]
"""``(clauses, rng, count) -> (source, targets)`` with ``count`` targets."""


@dataclass(frozen=True)
class Phrase:
    """A noun with number, definiteness and adjectives."""

    noun: Noun
    plural: bool
    definite: bool
    adjectives: tuple[Entry, ...]


@dataclass(frozen=True)
class Clause:
    """The meaning of a clause: subject, verb, object and adjuncts."""

    subject: Phrase
    verb: Entry
    past: bool
    object: Phrase | None
    adjuncts: tuple[tuple[Entry, Phrase | None], ...]  # adverb, or preposition with its phrase


@dataclass
class ToyLanguage:
    """The two grammars; ``seed`` determines which sentences are drawn."""

    seed: int = 0

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
        nouns = rng.sample(toy_words.ANIMALS + toy_words.PEOPLE, 3)
        return " ".join(self.target([self._clause(rng, short=True, nouns=nouns)], rng) for _ in range(sentences))

    def _clause(self, rng: random.Random, short: bool, nouns: Sequence[Noun] = ()) -> Clause:
        """Draw a clause; ``short`` ones are for sentences of two clauses."""
        nouns = nouns or toy_words.ANIMALS + toy_words.PEOPLE
        transitive = rng.random() < 0.75
        adjuncts: list[tuple[Entry, Phrase | None]] = []
        if rng.random() < 0.6:
            adjuncts.append((rng.choice(toy_words.ADVERBS), None))
        if not short and rng.random() < 0.6:
            place = _draw_phrase(rng, toy_words.PLACES, toy_words.PLACE_ADJECTIVES, (0, 0, 1))
            adjuncts.append((rng.choice(toy_words.PREPOSITIONS), place))
        sizes = (0, 0, 1) if short else (0, 1, 1, 2)
        return Clause(
            subject=_draw_phrase(rng, nouns, toy_words.ADJECTIVES, sizes),
            verb=rng.choice(toy_words.TRANSITIVE if transitive else toy_words.INTRANSITIVE),
            past=rng.random() < 0.5,
            object=_draw_phrase(rng, nouns, toy_words.ADJECTIVES, sizes) if transitive else None,
            adjuncts=tuple(adjuncts),
        )

    # Source grammar: one sentence per meaning.

    def source(self, clauses: Sequence[Clause]) -> str:
        """Return the source sentence of the clauses."""
        return " ".join([*_join([_source_clause(clause) for clause in clauses], "und"), "."])

    # Target grammar: draws one of the sentences with a meaning.

    def target(self, clauses: Sequence[Clause], rng: random.Random) -> str:
        """Draw one of the correct translations."""
        return " ".join([*_join([self._target_clause(clause, rng) for clause in clauses], "and"), "."])

    def _target_clause(self, clause: Clause, rng: random.Random) -> Words:
        verb = rng.choice(clause.verb.target)
        subject = _target_phrase(clause.subject, rng)
        if clause.object is None:
            core = [*subject, _verb_form(verb, clause.subject.plural, clause.past)]
        elif rng.random() < 0.5:
            acts = _verb_form(verb, clause.subject.plural, clause.past)
            core = [*subject, acts, *_target_phrase(clause.object, rng)]
        else:  # passive: the object comes first and the auxiliary agrees with it
            core = [*_target_phrase(clause.object, rng), *_passive(verb, clause.object.plural, clause.past), *subject]
        front: Words = []
        adjuncts = [_target_adjunct(*adjunct, rng) for adjunct in clause.adjuncts]
        rng.shuffle(adjuncts)
        if adjuncts and rng.random() < 0.5:
            front = adjuncts.pop()
        return front + core + [word for adjunct in adjuncts for word in adjunct]

    def _question(self, clause: Clause, rng: random.Random) -> str:
        verb = rng.choice(clause.verb.target)
        adjuncts = [word for adjunct in clause.adjuncts for word in _target_adjunct(*adjunct, rng)]
        if clause.object is not None and rng.random() < 0.5:
            asked, several = _question_words(clause.object)
            words = [*asked, *_passive(verb, several, clause.past), *_target_phrase(clause.subject, rng)]
        else:
            asked, several = _question_words(clause.subject)
            named = _target_phrase(clause.object, rng) if clause.object else []
            words = [*asked, _verb_form(verb, several, clause.past), *named]
        return " ".join([*words, *adjuncts, "?"])


def _draw_phrase(
    rng: random.Random, nouns: Sequence[Noun], adjectives: Sequence[Entry], sizes: Sequence[int]
) -> Phrase:
    """Draw a phrase; ``sizes`` are the numbers of adjectives to choose from."""
    chosen = rng.sample(adjectives, rng.choice(sizes))
    return Phrase(rng.choice(nouns), rng.random() < 0.4, rng.random() < 0.5, tuple(chosen))


def _source_clause(clause: Clause) -> Words:
    words = _source_phrase(clause.subject, "")
    for entry, phrase in clause.adjuncts:
        words += [*(_source_phrase(phrase, "n") if phrase else []), entry.source]
    words += _source_phrase(clause.object, "n") if clause.object else []
    return [*words, clause.verb.source + ("te" if clause.past else "t")]


def _source_phrase(phrase: Phrase, case: str) -> Words:
    ending = ("i" if phrase.plural else "e") + case
    stems = (phrase.noun, *phrase.adjectives)
    return ["da" if phrase.definite else "ei", *(stem.source + ending for stem in stems)]


def _target_adjunct(entry: Entry, phrase: Phrase | None, rng: random.Random) -> Words:
    return [*rng.choice(entry.target).split(), *(_target_phrase(phrase, rng) if phrase else [])]


def _target_phrase(phrase: Phrase, rng: random.Random) -> Words:
    noun = rng.choice(phrase.noun.target)
    words = [rng.choice(each.target) for each in phrase.adjectives]
    words.append(toy_words.plural(noun) if phrase.plural else noun)
    if phrase.definite:
        return ["the", *words]
    if phrase.plural:
        return ["some", *words]
    return ["an" if words[0][0] in toy_words.VOWELS else "a", *words]


def _verb_form(verb: str, plural: bool, past: bool) -> str:
    if past:
        return toy_words.past(verb)
    return verb if plural else toy_words.with_s(verb)


def _passive(verb: str, plural: bool, past: bool) -> Words:
    auxiliary = ("were" if plural else "was") if past else ("are" if plural else "is")
    return [auxiliary, toy_words.participle(verb), "by"]


def _question_words(asked: Phrase) -> tuple[Words, bool]:
    """Return the words that ask for a phrase, and whether their verb is plural: *who* is singular."""
    if asked.noun.person:
        return ["who"], False
    return ["which", "animals" if asked.plural else "animal"], asked.plural


def _join(parts: Sequence[Words], link: str) -> Words:
    joined = list(parts[0])
    for part in parts[1:]:
        joined += [link, *part]
    return joined
