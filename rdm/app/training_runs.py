"""Training runs as a report shows them: their learning curves, labelled by the overrides in which they differ."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rdm.app.run_folder import RunFolder
from rdm.evaluation.curves import METRICS_FILE, TrainingRun, read_curves

WITHOUT_EFFECT = ("debug=", "logger=", "logger.", "redo=", "resume=")
"""Overrides that change how a job runs, but not its result."""

NOT_IN_NAME = ("callbacks", "ckpt", "compile", r"data\.root", "debug", "hydra", "logger", "resume", "seed", "trainer")
"""Sections and keys that say how a run is carried out, not what is trained; left out of its name."""
MAX_NAME = 90


def run_name(system: str, overrides: Iterable[str], seed: int) -> str:
    """A readable name, e.g. ``rdm_absorbing reweighting=linear seed=1``: system, choices on the command line, seed.

    Choices of config groups come before values, because a long name is cut.
    """
    keys = {each: each.lstrip("+~").partition("=")[0] for each in overrides}
    kept = [each for each, key in keys.items() if not re.match(rf"({'|'.join(NOT_IN_NAME)})(\b|$)", key)]
    label = " ".join([system, *sorted(kept, key=lambda each: "." in keys[each])])
    return f"{label if len(label) <= MAX_NAME else label[: MAX_NAME - 3] + '...'} seed={seed}"


def find_training_runs(places: Iterable[str | Path]) -> list[Path]:
    """The run folders below ``places`` in which training logged metrics."""
    files = [file for place in map(Path, places) for file in sorted(place.rglob(METRICS_FILE))]
    return [folder for folder in dict.fromkeys(file.parent for file in files) if (folder / "config.yaml").is_file()]


def read_training_runs(folders: Sequence[Path]) -> list[TrainingRun]:
    """The learning curves of runs; none for a run that logged nothing yet."""
    labels = label_runs([RunFolder(folder).overrides for folder in folders])
    unique = [label if label and labels.count(label) == 1 else None for label in labels]
    return [
        TrainingRun(
            label or " ".join(filter(None, [folder.name, shared])),
            read_curves(folder / METRICS_FILE) if (folder / METRICS_FILE).is_file() else {},
        )
        for folder, label, shared in zip(folders, unique, labels, strict=True)
    ]


def label_runs(overrides: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of each run that not all runs have; empty for a single run."""
    shared = set(overrides[0]).intersection(*overrides[1:]) if overrides else set()
    return [
        " ".join(each for each in own if each not in shared and not each.startswith(WITHOUT_EFFECT))
        for own in overrides
    ]
