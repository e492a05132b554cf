"""Odd text, of all scripts and with all kinds of control characters, is trained on, evaluated, reported and decoded."""

from pathlib import Path

import pytest

from tests.scripts import script
from tests.test_end_to_end import SMALL

ODD_TEXTS = [
    "👩‍👩‍👧‍👦 😀 🏳️‍🌈",
    "שלום עולם",
    "مرحبا بالعالم",
    "\u202eright to left\u202c override",
    "bell\x07 escape\x1b[31m null\x00 end",
    "tab\tand\x0bvertical\x0cform feed",
    "z̷̢̛a̸l̵g̶o̷ combining",
    "\ufeffbyte order mark",
    "nul\u2028line\u2029paragraph\x85next line",
    "<script>alert(1)</script> <mask> <pad> <eos> [b]bold[/b] ${oc.env:HOME}",
    "\U0001d518\U0001d52b\U0001d526 \ufdfd ẞ İ",
]


@pytest.fixture(scope="module")
def odd_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a byte-level tokenizer on text that is all oddities."""
    folder = tmp_path_factory.mktemp("odd")
    lines = [text.replace("\n", " ") for text in ODD_TEXTS]
    for split, copies in (("train", 20), ("valid", 1), ("test", 1)):
        for side, texts in (("de", lines), ("en", lines[::-1])):
            (folder / f"{split}.{side}").write_text("\n".join(texts * copies) + "\n", encoding="utf-8")
    small = [override for override in SMALL if not override.startswith("data.")]
    pairs = ["data=text_pairs", "data.source=de", "data.target=en"]
    where = [f"data.root={folder}", f"data.cache={folder / 'cache'}", f"hydra.run.dir={folder / 'run'}"]
    script("train.py", *small, *pairs, *where, "data.tokenizer.size=400", "model.max_length=150")
    return folder / "run"


def test_odd_text_is_trained_on_and_evaluated(odd_run: Path) -> None:
    script("evaluate.py", f"ckpt={odd_run}", "decoding.steps=2", "decoding.length_candidates=2")
    script("-m", "rdm.report", str(odd_run))


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on ordinary words, for which every odd one is unknown."""
    run = tmp_path_factory.mktemp("other") / "run"
    script("train.py", *SMALL, f"hydra.run.dir={run}")
    return run


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_text_is_decoded(text: str, odd_run: Path, other_run: Path) -> None:
    for run in (odd_run, other_run):
        done = script("generate.py", f"ckpt={run}", "text=-", "trace=true", "decoding.steps=2", input=text)
        assert len([line for line in done.stdout.split("\n") if line[:4].strip().isdigit()]) == 3
