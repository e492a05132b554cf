"""``python docs/build/gloss.py``: writes the dictionary of the generated languages into docs/quickstart.md."""

import re
from pathlib import Path

from rdm.data import toy_words

PAGE = Path(__file__).parent.parent / "quickstart.md"
KINDS = {
    "animals": toy_words.ANIMALS,
    "people": toy_words.PEOPLE,
    "places": toy_words.PLACES,
    "adjectives": tuple(dict.fromkeys(toy_words.ADJECTIVES + toy_words.PLACE_ADJECTIVES)),
    "adverbs": toy_words.ADVERBS,
    "prepositions": toy_words.PREPOSITIONS,
    "verbs": toy_words.TRANSITIVE + toy_words.INTRANSITIVE,
}


def gloss() -> str:
    """A table with a line per kind of word."""
    lines = ["| | stems and their English words |", "| --- | --- |"]
    for kind, entries in KINDS.items():
        words = ", ".join(f"`{entry.source}` {' / '.join(entry.target)}" for entry in entries)
        lines.append(f"| {kind} | {words} |")
    return "\n".join(lines)


def with_gloss(page: str) -> str:
    """The page with the table between its marks."""
    marks = ("<!-- gloss: begin -->", "<!-- gloss: end -->")
    return re.sub(f"{marks[0]}.*{marks[1]}", lambda _: f"{marks[0]}\n{gloss()}\n{marks[1]}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_gloss(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
