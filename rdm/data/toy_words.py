"""The dictionary of the generated languages: pseudo-German stems with their English translations."""

from dataclasses import dataclass

VOWELS = "aeiou"


@dataclass(frozen=True)
class Entry:
    """A stem of the source language and its English synonyms."""

    source: str
    target: tuple[str, ...]


@dataclass(frozen=True)
class Noun(Entry):
    """A noun; ``person`` decides between *who* and *which animal* in questions."""

    person: bool = False


def entries(text: str) -> tuple[Entry, ...]:
    """Parse lines ``stem English, synonym``.

    >>> entries("alt old; gross big, large")[1].target
    ('big', 'large')
    """
    pairs = (line.strip().split(" ", 1) for line in text.split(";"))
    return tuple(Entry(source, tuple(target.split(", "))) for source, target in pairs)


def nouns(text: str, person: bool = False) -> tuple[Noun, ...]:
    """Parse nouns of the form that ``entries`` parses."""
    return tuple(Noun(entry.source, entry.target, person) for entry in entries(text))


ANIMALS = nouns(
    "hund dog, hound; katz cat; schwein pig, hog; vogl bird; has rabbit, hare; eul owl; aff monkey, ape; "
    "elefant elephant"
)
PEOPLE = nouns(
    "kind child, kid; frau woman; arzt doctor, physician; baur farmer; dieb thief, robber; onkl uncle; "
    "gast guest, visitor; mann man",
    person=True,
)
PLACES = nouns(
    "haus house; wald forest, wood; turm tower; strass street, road; baum tree; fluss river, stream; amt office; "
    "lad shop, store"
)
ADJECTIVES = entries(
    "alt old; gross big, large; nett friendly; klug clever, smart; zorn angry; mud tired, weary; reich rich; "
    "traur sad, unhappy"
)
PLACE_ADJECTIVES = entries("alt old; gross big, large; neu new; leer empty, vacant")
ADVERBS = entries("heut today; oft often, frequently; hier here; leise quietly, silently")
PREPOSITIONS = entries("hinter behind; neben beside, alongside; nah near; gegen opposite, facing")
TRANSITIVE = entries(
    "hor hear; seh see, spot; kenn know; ruf call, summon; trag carry; folg follow, trail; wasch wash; "
    "lieb love, adore; gruss greet; jag chase, hunt"
)
INTRANSITIVE = entries("schlaf sleep; lach laugh, giggle; tanz dance; wein cry, weep; wart wait; spring jump, leap")

IRREGULAR_PLURALS = {"child": "children", "man": "men", "woman": "women", "thief": "thieves"}
IRREGULAR_PASTS = {  # past tense, past participle
    "hear": ("heard", "heard"),
    "see": ("saw", "seen"),
    "spot": ("spotted", "spotted"),
    "know": ("knew", "known"),
    "sleep": ("slept", "slept"),
    "weep": ("wept", "wept"),
}


def with_s(word: str) -> str:
    """Return ``word`` with the ending of plural nouns and of verbs in the third person.

    >>> with_s("dog"), with_s("wash"), with_s("carry")
    ('dogs', 'washes', 'carries')
    """
    if word.endswith("y") and word[-2] not in VOWELS:
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "sh", "ch")) else f"{word}s"


def plural(noun: str) -> str:
    """Return the plural of an English noun."""
    return IRREGULAR_PLURALS.get(noun) or with_s(noun)


def past(verb: str) -> str:
    """Return the past tense of an English verb."""
    return IRREGULAR_PASTS[verb][0] if verb in IRREGULAR_PASTS else _with_ed(verb)


def participle(verb: str) -> str:
    """Return the past participle of an English verb."""
    return IRREGULAR_PASTS[verb][1] if verb in IRREGULAR_PASTS else _with_ed(verb)


def _with_ed(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return f"{verb[:-1]}ied"
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"
