"""Distillation: a data folder whose training targets are the outputs of a trained model (the teacher)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rdm.app.checks import overridden_keys
from rdm.app.line_files import announce, command_settings, one_line
from rdm.app.model import Model
from rdm.app.run_folder import git_commit
from rdm.data.corpus import Split
from rdm.data.module import TextDataModule
from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.evaluation.results import check_writable
from rdm.evaluation.resumable import ResumableResults
from rdm.files import write_text
from rdm.hashing import settings_hash

CARD = "card.md"


def distil(model: Model, decoding: Decoding, config: DictConfig) -> None:
    """Write a folder for ``data=text_pairs``: outputs of the model as training targets, the other splits unchanged.

    The card is written last, so a folder with a card is complete.
    """
    require(not model.system.open_ended, "distil: a model of text without sources cannot be distilled")
    folder = Path(config.distil)
    check_writable(folder / CARD)
    data_config = model.data_config(config.data, overridden_keys("data"))
    data, suffixes = model.data(data_config), file_suffixes(data_config.data)
    text = {split: data.corpus.fingerprint(split) for split in existing_splits(data)}
    settings = {**command_settings(model, config), "decoding": decoding.describe(), "text": text}
    use = f"python train.py data=text_pairs data.root={folder} data.source={suffixes[0]} data.target={suffixes[1]}"
    if finished(folder, settings):
        print(f"{folder} is complete: {use}")
        return

    sources = [one_line(source) for source in data.corpus.read("train")[0]]
    lengths = [len(row) for row in model.codec.tokenizer.encode(sources)]
    usable = [source if 0 < n <= model.codec.max_length else "" for source, n in zip(sources, lengths, strict=True)]
    work = model.generation(usable, decoding, config.batch_size, config.seed)
    with ResumableResults(folder / "train", settings) as store:
        announce(store, work, folder)
        outputs = work.run(store, str(decoding))
        texts = ["" if output is None else one_line(output.text).strip() for output in outputs]
        pairs = [(source, text) for source, text in zip(usable, texts, strict=True) if text]
        require(len(pairs) > 0, "distil: all outputs of the model are empty")
        write_split(folder, "train", suffixes, pairs)
        for split in text:
            if split != "train":
                columns = ([one_line(text) for text in column] for column in data.corpus.read(split))
                write_split(folder, split, suffixes, list(zip(*columns, strict=True)))
        facts = {
            "Teacher": f"`{model.run.origin}`, system {model.name}, step {model.cost['steps']}",
            "Weights": ", ".join(f"`{file.name}`" for file in model.run.checkpoints(config.average)),
            "Decoding": f"{decoding}, seed {config.seed}",
            "Source of the text": f"data `{data_config.data.name}`",
            **{f"Fingerprint of {split}": f"`{value}`" for split, value in text.items()},
            "Training pairs": f"{len(pairs):,} of {len(sources):,}; {unused(sources, usable, pairs)}",
            "Other splits": "the first reference of every source, unchanged",
            "Commit": f"`{git_commit()}`",
            "Settings": f"`{settings_hash(settings)}`",
        }
        write_text(folder / CARD, card(facts, use, settings))
        store.remove()
    print(f"wrote {folder}, {len(pairs)} training pairs: {use}")


def finished(folder: Path, settings: dict[str, Any]) -> bool:
    """Whether the folder is complete; raise if it holds anything but an attempt with the same settings."""
    if (folder / CARD).exists():
        same = f"`{settings_hash(settings)}`" in (folder / CARD).read_text(encoding="utf-8")
        require(same, f"distil: {folder} holds the output of other settings; choose another folder")
        return True
    started = (folder / "train.partial").exists()
    empty = not folder.exists() or not any(folder.iterdir())
    require(started or empty, f"distil: {folder} is not empty; choose another folder")
    return False


def file_suffixes(data: DictConfig) -> tuple[str, str]:
    """The suffixes of the source and target files: those of the run's data, if it has any."""
    names = [OmegaConf.select(data, key) for key in ("source", "target")]
    usable = all(isinstance(name, str) and name.isidentifier() for name in names) and names[0] != names[1]
    return (names[0], names[1]) if usable else ("source", "target")


def existing_splits(data: TextDataModule) -> list[Split]:
    """The splits of a corpus; validation and test text may be missing."""
    data.corpus.fingerprint("train")
    splits: list[Split] = ["train"]
    others: tuple[Split, ...] = ("valid", "test")
    for split in others:
        try:
            data.corpus.fingerprint(split)
        except UserError:
            continue
        splits.append(split)
    return splits


def write_split(folder: Path, split: str, suffixes: tuple[str, str], pairs: Sequence[tuple[str, ...]]) -> None:
    for side, suffix in enumerate(suffixes):
        write_text(folder / f"{split}.{suffix}", "".join(f"{pair[side]}\n" for pair in pairs))


def unused(sources: list[str], usable: list[str], pairs: list[tuple[str, str]]) -> str:
    """What was left out of the training split, by reason."""
    unread = sum(not source for source in usable)
    return f"left out: {unread:,} sources empty or too long, {len(sources) - unread - len(pairs):,} empty outputs"


def card(facts: dict[str, str], use: str, settings: dict[str, Any]) -> str:
    """The data card in Markdown."""
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    details = json.dumps(settings, indent=2, ensure_ascii=False)
    return (
        "# Distilled data\n\nTraining targets are outputs of a trained model; `train` has its sources in their "
        f"original order.\n\n    {use}\n\n| | |\n|---|---|\n{table}\n## All settings\n\n```json\n{details}\n```\n"
    )
