"""The folder of a trained model: everything needed to use it, wherever it is moved.

Of a run: config.yaml  codec.json  tokenizer.json  versions.json  checkpoints/*.ckpt  metrics.csv  train.log  finished
results.jsonl
Exported: config.yaml  codec.json  tokenizer.json  export.json  model.safetensors  README.md  figures/
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rdm.app.hub_models import find_on_hub
from rdm.app.trust import check_foreign, strings
from rdm.errors import UserError, require
from rdm.files import write_text
from rdm.hashing import settings_hash
from rdm.locks import lock_folder

if TYPE_CHECKING:  # the module is imported before arguments are checked, and must be fast to import
    from rdm.data.module import TextDataModule

SECTIONS = ("name", "seed", "data", "vocab", "system", "optimizer", "decoding", "trainer")
"""Keys that every configuration of a run has."""
NOT_BUILT = ("callbacks", "logger", "optimizer", "trainer")
"""Sections of which nothing is built when a trained model is used."""
PACKAGES = ("torch", "pytorch-lightning", "hydra-core", "tokenizers", "sacrebleu")
EXPORT_FILE = "export.json"
"""The file by which an exported folder is recognised."""
EXPORT_FORMAT = 1
"""Version of the keys in ``export.json``; other versions are refused."""
EXPORT_KEYS = {"recipe": str, "average": int, "overrides": list}
"""What is read from ``export.json``; the rest is for readers."""
EXPORTED_WEIGHTS = "model.safetensors"


def git_commit() -> str | None:
    """The git commit of the code, marked if there are uncommitted changes; None outside a checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # an installed package may lie below a checkout of something else
        return None
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def runs_in(place: Path) -> list[Path]:
    """``place`` if it is a run folder, otherwise the run folders in it."""
    return [place] if (place / "config.yaml").exists() else sorted(file.parent for file in place.glob("*/config.yaml"))


def to_yaml(config: DictConfig) -> str:
    """The configuration of a run as YAML.

    Interpolations stay, so that overriding ``data.root`` of a trained run changes what refers to it. Values that only
    Hydra can resolve are resolved now, and so is every ``_target_``, which :mod:`rdm.app.trust` wants to see literally.
    The section of a sweep is left out.
    """
    saved = OmegaConf.create(OmegaConf.to_container(config, resolve=False))
    assert isinstance(saved, DictConfig)
    saved.pop("sweep", None)
    saved.run_dir = config.run_dir
    for key, value in strings(OmegaConf.to_container(saved, resolve=False)):
        if key.endswith("._target_") and "${" in value:
            OmegaConf.update(saved, key, OmegaConf.select(config, key))
    return OmegaConf.to_yaml(saved, resolve=False)


@dataclass(frozen=True)
class RunFolder:
    """A folder with a trained model, and the checkpoint file if one was named.

    Attributes:
        trust: packages besides this one whose classes its configuration may name.
        hub: the id on the Hub it was downloaded from, ``user/name``; None for a folder of the user.
    """

    folder: Path
    checkpoint: Path | None = None
    trust: tuple[str, ...] = ()
    hub: str | None = None

    @classmethod
    def open(cls, path: str | None, key: str = "ckpt", trust: tuple[str, ...] = ()) -> "RunFolder":
        """A run folder, a checkpoint file in one, an exported folder, or a model on the Hub.

        Args:
            path: a path, or ``user/name`` or ``user/name@revision`` if there is no such path.
            key: the option that names it, for messages.
            trust: see the class.
        """
        if path is None:
            raise UserError("ckpt: name a model, e.g. ckpt=outputs/<run> or ckpt=outputs/<run>/checkpoints/last.ckpt")
        place = Path(path)
        if not place.exists() and (found := find_on_hub(path, key)) is not None:
            return cls(found.folder, None, trust, found.repository)
        require(place.exists(), f"{key}: {path} does not exist")
        if place.name == EXPORTED_WEIGHTS and place.is_file():
            place = place.parent
        folder = place if place.is_dir() else place.parent.parent
        require((folder / "config.yaml").is_file(), f"{key}: {folder} is not a run folder (it has no config.yaml)")
        return cls(folder, None if place.is_dir() else place, trust)

    def at_best(self) -> "RunFolder":
        """This run folder with its best checkpoint."""
        require(not self.exported, f"best=true: {self.origin} is an exported model, which has one set of weights")
        require(
            self.checkpoint is None, f"best=true needs a run folder, and {self.checkpoint} is a file: leave one out"
        )
        best = self.folder / "checkpoints" / "best.ckpt"
        require(best.is_file(), f"best=true: {self.folder} has no best.ckpt; train.py best=val/bleu saves one")
        return RunFolder(self.folder, best, self.trust)

    @property
    def exported(self) -> bool:
        """Whether this is a folder of ``python -m rdm.export``, without training state."""
        return (self.folder / EXPORT_FILE).is_file()

    @property
    def origin(self) -> str:
        """What result rows call the model: its folder, or its id on the Hub with the commit."""
        return str(self.folder) if self.hub is None else f"{self.hub}@{self.folder.name}"

    @property
    def writable(self) -> Path:
        """Where files about the model are written by default: the folder, or one in ``outputs`` for a Hub model."""
        return self.folder if self.hub is None else Path("outputs") / self.hub.replace("/", "--")

    # Written by training.

    @contextmanager
    def locked(self, resume: bool, rank: int) -> Iterator[None]:
        """Hold the folder's lock while training; a folder that holds a run is accepted only to ``resume`` it."""
        if rank > 0:  # of processes started separately, rank 0 holds the lock
            yield
            return
        with lock_folder(self.folder):
            require(
                resume or not (self.folder / "config.yaml").exists(),
                f"{self.folder} already holds a run; continue it with resume=auto, or choose another hydra.run.dir",
            )
            yield

    def write_description(self, config: DictConfig, data: "TextDataModule", overrides: Iterable[str]) -> None:
        """Write configuration, codec, versions and overrides of a run that is about to start."""
        self._finished_file.unlink(missing_ok=True)
        for leftover in (self.folder / "checkpoints").glob(".*.partial"):
            leftover.unlink()  # of a process that was killed
        write_text(self.folder / "config.yaml", to_yaml(config))
        data.codec.save(self.folder)
        versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
        record = {
            "commit": git_commit(),
            "versions": versions,
            "data": data.fingerprint(),
            "overrides": list(overrides),
            "initial_recipe": self._recipe_of(config.get("init")),
        }
        write_text(self.folder / "versions.json", json.dumps(record, indent=2) + "\n")

    def _recipe_of(self, init: str | None) -> str | None:
        """The recipe of the run named by ``init``, as recorded before if that run is gone when this one is resumed."""
        if init is None:
            return None
        return self.initial_recipe or RunFolder.open(init, key="init").recipe()

    def mark_finished(self) -> None:
        """Record that training finished."""
        self._finished_file.touch()

    # Read by everything else.

    @property
    def _finished_file(self) -> Path:
        return self.folder / "finished"

    @property
    def finished(self) -> bool:
        """Whether training finished."""
        return self._finished_file.exists()

    @property
    def overrides(self) -> list[str]:
        """The overrides the run was started with."""
        return self.record().get("overrides", [])

    @property
    def average(self) -> int:
        """Number of checkpoints whose mean the exported weights are; 1 for the folder of a run."""
        return self.record().get("average", 1)

    def record(self) -> dict[str, Any]:
        """What was recorded about the training besides its configuration: commit, versions, data, overrides."""
        if self.exported:
            return self._export_record()
        file = self.folder / "versions.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def _export_record(self) -> dict[str, Any]:
        file = self.folder / EXPORT_FILE
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:  # neither JSON nor UTF-8 is a ValueError
            raise UserError(f"{file} cannot be read ({type(error).__name__}): export the model again") from error
        found = record.get("format") if isinstance(record, dict) else None
        message = f"{file} has format {found}, but this version of rdm reads format {EXPORT_FORMAT}"
        require(found == EXPORT_FORMAT, message)
        wrong = [key for key, kind in EXPORT_KEYS.items() if not isinstance(record.get(key), kind)]
        require(not wrong, f"{file}: {', '.join(wrong)} missing or of a wrong type; export the model again")
        return record

    @property
    def config(self) -> DictConfig:
        """The configuration of the model with its interpolations; all it names may be built."""
        config = self.full_config
        for section in NOT_BUILT:
            config.pop(section, None)
        return check_foreign(config, self.folder / "config.yaml", self.trust)

    @property
    def full_config(self) -> DictConfig:
        """The whole configuration with its interpolations; nothing in it has been checked."""
        file = self.folder / "config.yaml"
        try:
            config = OmegaConf.load(file)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
            raise UserError(f"{file} cannot be read ({type(error).__name__}): name a run folder of train.py") from error
        missing = [key for key in SECTIONS if not isinstance(config, DictConfig) or config.get(key) is None]
        require(not missing, f"{file} is not the configuration of a run: it has no {', '.join(missing)}")
        assert isinstance(config, DictConfig)
        return config

    @property
    def choices(self) -> dict[str, Any]:
        """The choice for each config group in training."""
        return OmegaConf.to_container(self.full_config.get("choices", {}))  # type: ignore[return-value]

    def recipe(self) -> str:
        """A hash of everything that makes the model except the seed: runs of one recipe are averaged over."""
        if self.exported:  # its configuration has no paths any more, which are part of the hash
            return str(self.record()["recipe"])
        config = OmegaConf.to_container(self.full_config, resolve=True)
        assert isinstance(config, dict)
        data, trainer = dict(config["data"]["module"]), dict(config["trainer"])
        loading = data["loading"]
        data["loading"] = {name: loading[name] for name in ("max_tokens", "max_sentences")}
        trainer.pop("default_root_dir", None)
        parts = {"data": data, "trainer": trainer, **{name: config[name] for name in ("system", "optimizer")}}
        initial = {"init": self.initial_recipe} if self.initial_recipe else {}
        return settings_hash({**parts, **initial, "ema": config["callbacks"].get("ema")})

    @property
    def initial_recipe(self) -> str | None:
        """The recipe of the run that ``init`` named; None for a run that was trained from scratch."""
        return self.record().get("initial_recipe")

    def checkpoints(self, average: int = 1) -> list[Path]:
        """The named or newest checkpoint; with ``average > 1`` that many numbered ones up to and including it."""
        require(average >= 1, f"average must be at least 1, got {average}")
        if self.exported:
            message = f"average={average}: {self.origin} is an exported model, which has one set of weights"
            require(average == 1, message)
            self.record()  # of a version that can be read
            return [self.folder / EXPORTED_WEIGHTS]
        if average == 1:
            newest = self.newest_first()
            require(len(newest) > 0, f"ckpt: {self.folder} has no checkpoint yet")
            return newest[:1]
        numbered = sorted((self.folder / "checkpoints").glob("step_*.ckpt"))
        last = self.checkpoint or (numbered[-1] if numbered else None)
        require(last is None or last.name != "last.ckpt", "average: name a numbered checkpoint or the run folder")
        numbered = [file for file in numbered if last and file.name <= last.name]
        message = f"average={average}, but {self.folder} has {len(numbered)} numbered checkpoints to average"
        require(len(numbered) >= average, message)
        return numbered[-average:]

    def newest_first(self) -> list[Path]:
        """The named checkpoint, or else all checkpoints."""
        if self.checkpoint is not None:
            return [self.checkpoint]
        folder = self.folder / "checkpoints"
        unnumbered = [last for last in folder.glob("last.ckpt") if not last.is_symlink()]
        return unnumbered + sorted(folder.glob("step_*.ckpt"), reverse=True)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    print(f"warning: {message}", file=sys.stderr)
