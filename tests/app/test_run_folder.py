"""Run folders: runs of one recipe differ only in their seed."""

import json
from pathlib import Path

from rdm.app.run_folder import RunFolder, to_yaml
from tests.configs import config


def recipe(folder: Path, *overrides: str) -> str:
    composed = config(*overrides)
    composed.run_dir = str(folder)
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(composed))
    return RunFolder(folder).recipe()


def test_recipe_covers_everything_but_the_seed(tmp_path: Path) -> None:
    own = recipe(tmp_path / "own")
    assert recipe(tmp_path / "seed", "seed=2") == own
    for name, override in {
        "rate": "optimizer.lr=0.1",
        "average": "callbacks.ema.decay=0.5",
        "steps": "trainer.max_steps=7",
        "model": "model.dim=64",
        "batch": "data.max_tokens=99",
        "limit": "data.limit=9",
        "hold_out": "data.hold_out=9",
    }.items():
        assert recipe(tmp_path / name, override) != own, override


def test_recipe_covers_the_run_that_init_named(tmp_path: Path) -> None:
    """Also when that run is gone, as recorded when this one started."""
    own, initialised = recipe(tmp_path / "own"), tmp_path / "initialised"
    assert recipe(initialised) == own
    (initialised / "versions.json").write_text(json.dumps({"initial_recipe": own}))
    assert RunFolder(initialised).recipe() != own
