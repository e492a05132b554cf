"""Broken files and folders for the tests of wrong uses, made from one good run."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

HYPOTHESIS = {"source": "s", "references": ["r"], "hypothesis": "h", "candidates": ["h"]}
LONG = "word " * 10_000


def make(world: Path) -> None:
    """Fill ``world``, which holds a good run in ``run``, with everything that can be wrong."""
    (world / "file").write_text("x")
    (world / "folder").mkdir()
    _runs(world)
    _texts(world)
    _results(world)


def _variant(world: Path, name: str) -> Path:
    return Path(shutil.copytree(world / "run", world / name))


def _with_checkpoints(world: Path, name: str, content: Any) -> None:
    for file in (_variant(world, name) / "checkpoints").iterdir():
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            torch.save(content, file)


def _with_config(world: Path, name: str, content: bytes) -> None:
    (_variant(world, name) / "config.yaml").write_bytes(content)


def _runs(world: Path) -> None:
    good = (world / "run" / "checkpoints" / "last.ckpt").read_bytes()
    _with_checkpoints(world, "cut_checkpoint", good[: len(good) // 2])
    _with_checkpoints(world, "empty_checkpoint", b"")
    _with_checkpoints(world, "text_checkpoint", b"not a checkpoint")
    _with_checkpoints(world, "list_checkpoint", [1, 2])
    shutil.rmtree(_variant(world, "no_checkpoint") / "checkpoints")
    (_variant(world, "no_tokenizer") / "tokenizer.json").unlink()
    (_variant(world, "cut_tokenizer") / "tokenizer.json").write_text("{")
    tokenizer = json.loads((world / "run" / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["more"] = len(tokenizer["model"]["vocab"])
    (_variant(world, "ids_out_of_range") / "tokenizer.json").write_text(json.dumps(tokenizer))
    _with_config(world, "config_not_yaml", b"a: [1")
    _with_config(world, "config_empty", b"")
    _with_config(world, "config_list", b"- 1\n")
    _with_config(world, "config_latin", b"name: \xe4\n")
    _with_config(world, "config_of_something_else", b"name: x\nseed: 1\ndata: {}\n")
    config = yaml.safe_load((world / "run" / "config.yaml").read_text())
    wider = {**config["model"], "dim": config["model"]["dim"] * 2}
    _with_config(world, "other_size", yaml.safe_dump({**config, "model": wider}).encode())
    _with_config(
        world, "no_system", yaml.safe_dump({**config, "system": {"_target_": "rdm.vocab.Vocab", "size": 9}}).encode()
    )
    _with_config(
        world,
        "foreign_code",
        yaml.safe_dump({**config, "system": {"_target_": "os.system", "command": "true"}}).encode(),
    )


def _texts(world: Path) -> None:
    def aligned(name: str, source: bytes, target: bytes) -> None:
        (world / name).mkdir()
        for split in ("train", "valid", "test"):
            (world / name / f"{split}.de").write_bytes(source)
            (world / name / f"{split}.en").write_bytes(target)

    aligned("uneven", b"a\nb\nc\n", b"a\nb\n")
    aligned("latin", "a\nü\n".encode("latin-1"), b"a\nb\n")
    aligned("binary", bytes(range(256)), b"a\n")
    aligned("empty", b"", b"")
    aligned("blank", b"\n\n\n", b"\n\n\n")
    aligned("hollow", b"a\n\nb\n", b"a\nb\nc\n")
    aligned("long", LONG.encode(), LONG.encode())
    (world / "cut_gz").mkdir()
    for name in ("train.de.gz", "train.en.gz"):
        (world / "cut_gz" / name).write_bytes(gzip.compress(b"a\n" * 1000)[:20])

    def json_lines(name: str, content: str) -> None:
        (world / name).mkdir()
        for split in ("train", "valid", "test"):
            (world / name / f"{split}.jsonl").write_text(content)

    json_lines("json_cut", '{"src": "a", "trg": "b"}\n{"src": "a"\n')
    json_lines("json_key", '{"src": "a"}\n')
    json_lines("json_list", '["a", "b"]\n')
    json_lines("json_number", '{"src": 1, "trg": "b"}\n')
    json_lines("json_surrogate", '{"src": "\\ud800", "trg": "b"}\n')
    json_lines("json_deep", "[" * 100_000 + "\n")


def _results(world: Path) -> None:
    contents = {
        "rows_cut.jsonl": b'{"a": 1\n',
        "rows_list.jsonl": b"[1]\n",
        "rows_latin.jsonl": b'{"a": "\xe4"}\n',
        "rows_other.jsonl": b'{"a": 1}\n',
        "rows_empty.jsonl": b"",
        "outputs_types.jsonl": b'{"source": 1, "references": 5, "hypothesis": null}\n',
    }
    for name, content in contents.items():
        (world / name).write_bytes(content)

    def hypotheses(name: str, *rows: dict[str, Any]) -> None:
        (world / name).write_text("".join(json.dumps({**HYPOTHESIS, **row}) + "\n" for row in rows))

    hypotheses("outputs.jsonl", {})
    hypotheses("outputs_other.jsonl", {"source": "t"})
    hypotheses("outputs_uneven.jsonl", {}, {"references": ["a", "b"]})
    hypotheses("outputs_none.jsonl", {"references": []})
