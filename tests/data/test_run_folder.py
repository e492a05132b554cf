"""The scripts decode new text with the files of the run folder alone."""

import json
import shutil
from pathlib import Path

from tests.scripts import script

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "cat", "sees"]


def test_decoding_needs_no_vocabulary_file_corpus_or_cache(tmp_path: Path) -> None:
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    for split in ("train", "valid", "test"):
        rows = [{"src": "the dogs sees the cat", "trg": "the cat sees"}] * 4
        (outside / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script(
        "train.py",
        "data=jsonl_pairs",
        f"data.root={outside}",
        "data/tokenizer=wordpiece_file",
        f"data.tokenizer.vocabulary={outside / 'vocab.txt'}",
        f"data.cache={outside / 'cache'}",
        "trainer.max_steps=2",
        "trainer.val_check_interval=2",
        "callbacks.sampling.sentences=2",
        f"hydra.run.dir={run}",
    )
    assert json.loads((run / "codec.json").read_text())["kind"] == "pairs"
    shutil.rmtree(outside)
    moved = run.rename(tmp_path / "moved")
    done = script("generate.py", f"ckpt={moved}", "text='The DOG sees the cats'", "decoding.steps=2", "trace=true")
    assert done.stdout
    missing = script("generate.py", f"ckpt={moved}", "decoding.steps=2", code=2)  # decodes the test split
    assert "test.jsonl" in missing.stderr
    (moved / "codec.json").write_text('{"kind": "os.system", "max_length": 5}')
    refused = script("generate.py", f"ckpt={moved}", "text='the dog'", "decoding.steps=2", code=2)
    assert "codec.json: 'os.system' is not a kind of codec; there are pairs, open_ended" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
