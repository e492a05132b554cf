"""Chunks and even samples of texts that are larger than memory."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

SAMPLE = 64 * 10**6  # characters
CHUNK = 5_000  # texts
CHUNK_CHARACTERS = 10**6
STEP, RANGE = 2654435769, 2**32  # RANGE over the golden ratio: multiples of STEP modulo RANGE are spread evenly

Item = TypeVar("Item")


def sample_texts(texts: Iterable[str], limit: int = SAMPLE) -> list[str]:
    """Return the texts to train a tokenizer on: all, or a sample of up to ``limit`` characters.

    The sample is a half of the texts, a quarter, and so on, spread evenly. It depends on ``texts`` and ``limit`` alone,
    and no more than ``limit`` characters are held in memory. A line on standard error tells its size.

    >>> sample_texts(["ab", "cd", "ef"], limit=6), sample_texts(map(str, range(10, 20)), limit=8)
    (['ab', 'cd', 'ef'], ['10', '12', '15'])
    """
    kept: list[tuple[int, str]] = []
    characters = number = 0
    bound = RANGE
    for number, text in enumerate(texts):
        if number * STEP % RANGE < bound:
            kept.append((number, text))
            characters += len(text)
            while characters > limit and len(kept) > 1:
                bound //= 2
                kept = [each for each in kept if each[0] * STEP % RANGE < bound]
                characters = sum(len(each) for _, each in kept)
    if bound < RANGE:
        counts = f"{len(kept):,} of {number + 1:,} texts, {characters:,} characters"
        print(f"the tokenizer is trained on a sample: {counts}", file=sys.stderr)
    return [text for _, text in kept]


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists of up to :data:`CHUNK`, fewer if they are long."""
    return cut(texts, len, CHUNK, CHUNK_CHARACTERS)


def cut(items: Iterable[Item], size: Callable[[Item], int], most: int, largest: int) -> Iterator[list[Item]]:
    """Yield consecutive items in lists of up to ``most``; a list also ends when its sizes add up to ``largest``.

    >>> list(cut("aabbbc", ord, most=2, largest=98))
    [['a', 'a'], ['b'], ['b'], ['b'], ['c']]
    """
    part: list[Item] = []
    total = 0
    for item in items:
        part.append(item)
        total += size(item)
        if len(part) >= most or total >= largest:
            yield part
            part, total = [], 0
    if part:
        yield part
