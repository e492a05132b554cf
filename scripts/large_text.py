"""Generate text of any size: ``python scripts/large_text.py FOLDER --pairs 4000000 --words 100000000``.

Invented words with Zipf-Mandelbrot frequencies, p(r) ~ 1 / (r + 2.7)^1.07, and sentence lengths like those of WMT14.
Text is written in blocks, so memory does not depend on the size, and depends on the seed alone.

- ``--pairs N``: aligned files ``train.en`` and ``train.de`` with N lines; ``valid.*`` and ``test.*`` have 2,000 each.
- ``--words N``: documents of about 3,600 words with WikiText's headings, about N words in ``train.txt``.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TYPES = 500_000  # distinct words per language
BLOCK = 20_000  # sentences drawn at a time
HELD_OUT = 2_000  # pairs of the validation and test files
CONSONANTS, VOWELS = "bdfghklmnprstvwz", "aeiouäö"


class Language:
    """Draws sentences of invented words.

    >>> english, again = (Language(np.random.default_rng(1), types=50) for _ in range(2))
    >>> english.sentences(np.array([3, 1])) == again.sentences(np.array([3, 1]))
    True
    """

    def __init__(self, rng: np.random.Generator, types: int = TYPES) -> None:
        self.rng = rng
        syllables = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
        rng.shuffle(syllables)
        self.words = np.array([spell(rank, syllables) for rank in range(types)], dtype=object)
        frequencies = (np.arange(types) + 2.7) ** -1.07
        self.cumulative = np.cumsum(frequencies / frequencies.sum())

    def sentences(self, lengths: NDArray[np.int64]) -> list[str]:
        """Return one sentence of each length, counted in words with the full stop."""
        ranks = np.searchsorted(self.cumulative[:-1], self.rng.random(int(lengths.sum())))
        words = self.words[ranks].tolist()
        ends = np.cumsum(lengths).tolist()
        starts = [0, *ends[:-1]]
        return [" ".join(words[start : end - 1]) + " ." for start, end in zip(starts, ends, strict=True)]


def spell(rank: int, syllables: list[str]) -> str:
    """Return a word for a frequency rank; frequent words are short, and no two are equal."""
    word, rank = syllables[rank % len(syllables)], rank // len(syllables)
    while rank:
        rank -= 1
        word, rank = word + syllables[rank % len(syllables)], rank // len(syllables)
    return word


def sentence_lengths(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw numbers of words: log-normal, mean about 26, between 2 and 200."""
    return np.clip(rng.lognormal(3.05, 0.65, count), 2, 200).astype(np.int64)


def blocks(total: int) -> Iterator[int]:
    """Yield the sizes of the blocks that ``total`` is drawn in."""
    for start in range(0, total, BLOCK):
        yield min(BLOCK, total - start)


def write_pairs(folder: Path, count: int, seed: int = 0) -> None:
    """Write aligned files: ``count`` training pairs, and :data:`HELD_OUT` each for validation and test."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    source, target = Language(rng), Language(rng)
    for split, size in (("valid", HELD_OUT), ("test", HELD_OUT), ("train", count)):
        with (folder / f"{split}.en").open("w") as english, (folder / f"{split}.de").open("w") as german:
            for block in blocks(size):
                lengths = sentence_lengths(rng, block)
                english.write("\n".join(source.sentences(lengths)) + "\n")
                ratio = rng.normal(0.97, 0.12, block)
                german.write("\n".join(target.sentences(np.clip(lengths * ratio, 2, 200).astype(np.int64))) + "\n")


def write_documents(folder: Path, words: int, seed: int = 0) -> None:
    """Write ``train.txt`` with about ``words`` words, and ``valid.txt`` and ``test.txt`` with 200,000 at most."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    language = Language(rng)
    for split, size in (("valid", min(words, 200_000)), ("test", min(words, 200_000)), ("train", words)):
        with (folder / f"{split}.txt").open("w") as stream:
            written = 0
            while written < size:
                lengths = sentence_lengths(rng, 2_000)
                sentences = language.sentences(lengths)
                written += int(lengths.sum())
                for start in range(0, len(sentences), 140):  # sentences of a document, in paragraphs of five
                    part = sentences[start : start + 140]
                    title = part[0].removesuffix(" .")
                    paragraphs = [" ".join(part[i : i + 5]) for i in range(0, len(part), 5)]
                    stream.write(f" = {title} = \n \n " + " \n ".join(paragraphs) + " \n \n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--words", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.pairs:
        write_pairs(arguments.folder, arguments.pairs, arguments.seed)
    if arguments.words:
        write_documents(arguments.folder, arguments.words, arguments.seed)


if __name__ == "__main__":
    main()
