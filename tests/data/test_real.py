"""Real corpora below the folder ``RDM_DATA``, if there are any."""

import os
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from rdm.data.module import TextDataModule
from tests.configs import config

pytestmark = pytest.mark.slow

ROOT = Path(os.environ.get("RDM_DATA", "nowhere"))
SETS = {  # folder: data set, number of train, valid and test examples according to its card
    "multi30k": ("multi30k_de_en", (29_000, 1_014, 1_000)),
    "tatoeba_de_en": ("tatoeba_de_en", (165_812, 2_000, 2_001)),
    "qqp": ("qqp", None),
    "squad_qg": ("qg", None),
    "wikitext2": ("wikitext2", None),
}


@pytest.mark.parametrize("folder", SETS)
def test_real_text(folder: str, tmp_path: Path) -> None:
    """Counts agree with the card, batches hold the text, and prepared splits are found in the cache."""
    if not (ROOT / folder).is_dir():
        pytest.skip(f"there is no {ROOT / folder}; set RDM_DATA to the folder that holds {folder}")
    name, counts = SETS[folder]
    composed = config(f"data={name}", f"data.root={ROOT / folder}", f"data.cache={tmp_path}", "model.max_length=255")

    def build() -> TextDataModule:
        return instantiate(composed.data.module)

    data = build()
    sizes = [len(data.examples(split)) for split in ("train", "valid", "test")]
    left_out = sum(data.left_out("train").values()) if counts else 0
    assert counts is None or sizes == [counts[0] - left_out, *counts[1:]]
    assert left_out <= 10
    batch = data.examples("valid")[[0, 1, 2]]
    again = build()
    again._build_tokenizer = again._encode_split = None  # type: ignore[method-assign, assignment]  # must be cached
    assert again.vocab == data.vocab
    assert torch.equal(again.examples("valid")[[0, 1, 2]].target, batch.target)
    if counts:
        _, targets = data.corpus.read("valid")
        decoded = data.codec.decode(batch.target.tolist())
        lossless = folder in ("multi30k", "tatoeba_de_en")
        assert not lossless or decoded == targets[:3]
        assert len(data.questions("test")) == counts[2]
    else:
        assert {len(row) for row in data.questions("test").rows} == {32}
        assert batch.target.shape == (3, 256)
    positions = tokens = 0
    for batch in data.train_dataloader():
        for side in (batch.source, batch.target):
            positions, tokens = positions + side.numel(), tokens + int((side != data.vocab.pad).sum())
    if folder == "multi30k":
        assert 1 - tokens / positions <= 0.05
