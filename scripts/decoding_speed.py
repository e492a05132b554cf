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
from rdm.errors import UserError

SENTENCES = {1: 48, 32: 192}
"""Sentences decoded by batch size: the first ones of the file."""
TEN: dict[str, object] = {"steps": 10}
DECODINGS: list[tuple[str, dict[str, object]]] = [
    ("vanilla", {"steps": 2}),
    ("rdm", {"schedule": "linear", "steps": 2}),
    ("vanilla", {"steps": 4}),
    ("rdm", {"schedule": "linear", "steps": 4}),
    ("rdm_commit", {"schedule": "linear", "steps": 4}),
    ("rdm", {"schedule": "linear", "steps": 5}),
    ("rdm_commit", {"schedule": "linear", "steps": 5}),
    ("rdm", {"schedule": "linear", "steps": 6}),
    ("fast", {}),
    ("best", {}),
    *(
        (name, TEN)
        for name in ("dndm", "dndm_k", "factor", "klass", "mask_predict", "psi", "rdm", "rdm_cond", "vanilla")
    ),
    *((name, TEN) for name in ("remdm_conf", "remdm_loop", "leave_one_out")),
    *((name, {"transition.eta": 0.01, **TEN}) for name in ("remdm_cap", "remdm_rescale")),
    *((name, {"transition.gamma": 1.0, **TEN}) for name in ("entropy_bound", "entropy_bound_renoise")),
    ("threshold", {"transition.threshold": 0.7, **TEN}),
    ("editing", {"transition.threshold": 0.7, "transition.edit_threshold": 0.8, **TEN}),
    ("p2", {"temperature": 0.0, **TEN}),
    ("rdm_commit", {"schedule": "linear", **TEN}),
    ("rdm_commit", {"schedule": "linear", "token_cache": 2, **TEN}),
    ("rdm_commit", {"schedule": "linear", "token_cache": 4, **TEN}),
    ("rdm_commit", {"schedule": "linear", "block": 4, "steps": 4}),
    ("rdm_commit", {"schedule": "linear", "block": 4, "block_cache": True, "steps": 4}),
]
"""All methods, with the options of the tables of test rows; those that do not fit the noise are left out."""
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
        try:
            speeds = {
                batch: sentences_per_second(model, sources[:count], name, options, batch)
                for batch, count in SENTENCES.items()
            }
        except UserError as refused:
            print(f"{typed(name, options)}: {refused}")
            continue
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
