"""Reads the file of an offline W&B run: records of ``wandb.proto`` in the log format of LevelDB."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

FILE_HEADER, BLOCK, RECORD_HEADER = 7, 32768, 7
FULL, LAST = 1, 4


@dataclass
class OfflineRun:
    """What a run logged: name, tags and job type, its configuration, and the keys of its history."""

    name: str = ""
    group: str = ""
    job_type: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)


def read_records(file: Path) -> Iterator[Record]:
    data, position, parts = file.read_bytes(), FILE_HEADER, b""
    while position + RECORD_HEADER <= len(data):
        if BLOCK - position % BLOCK < RECORD_HEADER:  # the rest of a block that is too small for a header
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        position += RECORD_HEADER
        parts += data[position : position + length]
        position += length
        if kind in (FULL, LAST):
            yield Record.FromString(parts)
            parts = b""


def read_offline_run(folder: Path) -> OfflineRun:
    """The run in a folder ``offline-run-<date>_<time>-<id>``."""
    (file,) = folder.glob("*.wandb")
    run = OfflineRun()
    for record in read_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.name, run.group, run.job_type = record.run.display_name, record.run.run_group, record.run.job_type
            run.tags = list(record.run.tags)
        elif kind == "history":
            run.keys |= {item.key or item.nested_key[0] for item in record.history.item}
        updates = {"run": record.run.config.update, "config": record.config.update}.get(str(kind), ())
        run.config |= {item.key: json.loads(item.value_json) for item in updates if item.key}
    return run
