"""Speed of decodings: ``python scripts/decoding_speed.py <run> <file of sources> <rows.jsonl>``.

Writes for each decoding the sentences decoded per CPU second, one by one and in batches of 32 (start-up and loading not
counted). CPU time is that of this process, so set ``OMP_NUM_THREADS=1`` and other work on the machine hardly matters.
"""

import json
import sys
import time
from pathlib import Path

import rdm
from rdm.app.model import Model

SENTENCES = {1: 48, 32: 192}
"""Sentences decoded by batch size: the first ones of the file."""
DECODINGS: list[tuple[str, dict[str, object]]] = [
    ("rdm", {"schedule": "linear", "steps": 2}),
    ("rdm_commit", {"schedule": "linear", "steps": 4}),
    ("vanilla", {"steps": 4}),
    ("fast", {}),
    ("best", {}),
    ("factor", {"steps": 10}),
    ("threshold", {"transition.threshold": 0.7, "steps": 10}),
    ("rdm_commit", {"schedule": "linear", "steps": 10}),
    ("rdm_commit", {"schedule": "linear", "steps": 10, "token_cache": 2}),
    ("rdm_commit", {"schedule": "linear", "steps": 10, "token_cache": 4}),
    ("rdm_commit", {"schedule": "linear", "block": 4, "steps": 4}),
    ("rdm_commit", {"schedule": "linear", "block": 4, "block_cache": True, "steps": 4}),
    ("vanilla", {"steps": 10}),
    ("rdm", {"steps": 10}),
]
GROUPS = ("schedule", "selection", "ranking")


def typed(name: str, options: dict[str, object]) -> str:
    """What to type in ``evaluate.py`` for a decoding."""
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
    words = (f"{key}={value}" if key in GROUPS else f"decoding.{key}={value}" for key, value in values.items())
    return " ".join([f"decoding={name}", *words])


def sentences_per_second(model: Model, sources: list[str], name: str, options: dict[str, object], batch: int) -> float:
    start = time.process_time()
    model.generate(sources, name, batch_size=batch, **options)
    return len(sources) / (time.process_time() - start)


def main(run: str, file: str, out: str) -> None:
    model = rdm.load(run)
    sources = Path(file).read_text(encoding="utf-8").splitlines()
    model.generate(sources[:32], batch_size=32)  # the first call sets up libraries
    for name, options in DECODINGS:
        speeds = {
            batch: sentences_per_second(model, sources[:count], name, options, batch)
            for batch, count in SENTENCES.items()
        }
        row = {
            "system": model.name,
            "overrides": typed(name, options),
            "sentences_per_cpu_second": {str(batch): round(speed, 2) for batch, speed in speeds.items()},
        }
        with Path(out).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")
        print(f"{row['overrides']}: " + ", ".join(f"batch {batch} {speed:.2f}/s" for batch, speed in speeds.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
