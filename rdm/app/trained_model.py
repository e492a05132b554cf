"""A trained model, loaded from its run folder and ready to decode."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError
from torch import Tensor

from rdm.app.run_data import merged, with_data
from rdm.app.run_folder import RunFolder
from rdm.app.targets import build
from rdm.data.codec import Codec
from rdm.data.module import TextDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.gaussian import GaussianSampler
from rdm.decoding.sampler import Sampler
from rdm.describe import with_argument
from rdm.errors import UserError, require
from rdm.evaluation.batched_work import BatchedWork, batches_by_length
from rdm.evaluation.generation import Generated, SentenceScore, generate_batch, score_batch
from rdm.models.int8 import in_int8
from rdm.systems.autoregressive import AutoregressiveSystem
from rdm.systems.base import System
from rdm.systems.rescoring import TeacherScore
from rdm.training.checkpoints import check_fits, read_checkpoint
from rdm.training.training_cost import CHECKPOINT_KEY

TRAINING_GROUPS = ("data", "model", "system", "diffusion", "reweighting", "optimizer")
"""Config groups that make a model."""
EMPTY = Generated("", 0.0, [])
"""The output for an empty source."""
Stamped = tuple[tuple[Path, int], ...]
"""Files with the time of their last modification."""


@dataclass(frozen=True)
class TrainedModel:
    """A system with its weights, its codec, and the run it comes from.

    Attributes:
        cost: overrides, parameters, steps, target tokens, seconds and machine of the training.
    """

    run: RunFolder
    system: System
    codec: Codec
    cost: dict[str, Any]
    int8: bool

    @classmethod
    def load(
        cls, ckpt: str | None, average: int = 1, device: str = "auto", int8: bool = False, best: bool = False
    ) -> "TrainedModel":
        """Load EMA weights (averaged over checkpoints if ``average > 1``, or the best) onto ``device``."""
        run = RunFolder.open(ckpt)
        if best:
            require(average == 1, f"best=true selects one checkpoint: leave out average={average}")
            run = run.at_best()
        system, cost = load_system(run.folder, stamped(*run.checkpoints(average)))
        files = (run.folder / name for name in ("config.yaml", "codec.json", "tokenizer.json"))
        codec = load_codec(run.folder, stamped(*files))
        system = move(system, device)
        if int8:
            kind = next(system.parameters()).device.type
            require(kind == "cpu", f"int8=true works on a CPU only, and the device is {kind}: add device=cpu")
            system = in_int8(system)
        return cls(run, system, codec, cost, int8)

    def decoding(self, overrides: DictConfig, teacher: "TrainedModel | None" = None) -> Decoding:
        """A decoding strategy for this model.

        Args:
            overrides: a complete strategy, or values that replace those of the trained one.
            teacher: an autoregressive model that selects among the candidates; None leaves that to the decoding.
        """
        config = self.run.config
        given = OmegaConf.to_container(overrides, resolve=False)
        assert isinstance(given, dict)
        trained = OmegaConf.to_container(config.decoding, resolve=False)
        assert isinstance(trained, dict)
        config.decoding = given if "_target_" in given else merged(trained, given)
        try:
            decoding = build(config.decoding, "decoding", Decoding)
        except InterpolationKeyError as error:  # decoding=vanilla refers to the run's diffusion
            raise UserError(f"decoding={config.decoding.name} is not for a model of system {config.name}") from error
        self.system.check(decoding)
        return decoding if teacher is None else self._rescored(decoding, teacher)

    def _rescored(self, decoding: Decoding, teacher: "TrainedModel") -> Decoding:
        """``decoding`` with the selection replaced by the scores of ``teacher``."""
        name = f"rescore: {teacher.run.folder}"
        ar = isinstance(teacher.system, AutoregressiveSystem)
        require(ar, f"{name} is a run of system {teacher.run.config.name}; name a run of system=ar")
        selects = isinstance(decoding, Sampler | GaussianSampler) and decoding.candidates > 1
        require(
            selects, f"{name} has no candidates to choose from: decoding={decoding.name} decodes one text per source"
        )
        own = teacher.describe()
        origin = {key: own[key] for key in ("run", "recipe", "system", "checkpoint_step", "int8")}
        return with_argument(decoding, "selection", TeacherScore(teacher.system, teacher.codec, self.codec, origin))

    def data_config(self, overrides: DictConfig, typed: Iterable[str]) -> DictConfig:
        """The run's configuration with other data; see :func:`rdm.app.run_data.with_data`."""
        return with_data(self.run.config, overrides, typed)

    def data(self, config: DictConfig | None = None) -> TextDataModule:
        """The data of ``config`` with the model's codec; by default the data the model was trained on."""
        section = OmegaConf.to_yaml(config, resolve=False) if config is not None else None
        data = load_data(self.run.folder, stamped(self.run.folder / "config.yaml"), section, self.codec)
        kinds = {True: "text without sources", False: "pairs"}
        expected, found = kinds[self.system.open_ended], kinds[data.open_ended]
        require(expected == found, f"data: the model was trained on {expected}, but these are {found}")
        return data

    def generate(
        self, texts: Sequence[str], decoding: Decoding, batch_size: int = 50, seed: int = 1
    ) -> list[Generated]:
        """Generate a text for each source; the output for an empty text is empty, without candidates.

        Args:
            texts: the sources, or the prompts of an open-ended model.
            decoding: see :meth:`decoding`.
            batch_size: sources per batch. Batches are sorted by length and do not depend on each other.
            seed: of the random numbers of the first batch; the next one has ``seed + 1``, and so on.
        """
        results = self.generation(texts, decoding, batch_size, seed).run()
        return [EMPTY if result is None else result for result in results]

    def generation(
        self, texts: Sequence[str], decoding: Decoding, batch_size: int = 50, seed: int = 1
    ) -> BatchedWork[Generated]:
        """The work of :meth:`generate`, to be run with a progress bar or resumed."""
        rows = encode_filled(self.codec.encode_sources, texts)
        lengths = {index: len(row) for index, row in rows.items()}
        batches = batches_by_length(lengths, batch_size, self.system.open_ended)

        def compute(number: int) -> list[Generated]:
            chosen = [rows[index] for index in batches[number]]
            return generate_batch(self.system, decoding, self.codec, chosen, seed + number)

        return BatchedWork(len(texts), batches, compute, Generated.restore)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 50, seed: int = 1
    ) -> list[SentenceScore | None]:
        """The negative log-likelihood of each target in nats, its tokens and the kind of likelihood.

        None for a pair of two empty texts. The arguments are those of :meth:`generate`.
        """
        return self.scoring(sources, targets, batch_size, seed).run()

    def scoring(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 50, seed: int = 1
    ) -> BatchedWork[SentenceScore]:
        """The work of :meth:`score`, to be run with a progress bar or resumed."""
        require(len(sources) == len(targets), f"score: got {len(sources)} sources, but {len(targets)} targets")
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
            empty = "source" if not source.strip() else "target"
            require(bool(source.strip()) == bool(target.strip()), f"score: the {empty} of pair {number} is empty")
        read = encode_filled(self.codec.encode_sources, sources)
        written = encode_filled(self.codec.encode_targets, targets)
        lengths = {i: max(len(row), len(written[i])) for i, row in read.items()}
        if self.system.open_ended:  # without padding: equal prompts and equal continuations have one number
            lengths = {i: len(row) * (self.codec.max_length + 1) + len(written[i]) for i, row in read.items()}
        batches = batches_by_length(lengths, batch_size, self.system.open_ended)

        def compute(number: int) -> list[SentenceScore]:
            pairs = [(read[index], written[index]) for index in batches[number]]
            sides = [source for source, _ in pairs], [target for _, target in pairs]
            return score_batch(self.system, self.codec, *sides, seed + number)

        return BatchedWork(len(sources), batches, compute, SentenceScore.restore)

    def describe(self) -> dict[str, Any]:
        """The settings of a result row that concern the model."""
        config = self.run.config
        choices = {group: name for group, name in self.run.choices.items() if group.split("/")[0] in TRAINING_GROUPS}
        return {
            "run": str(self.run.folder),
            "recipe": self.run.recipe(),
            "train_seed": config.seed,
            "choices": choices,
            "data": config.data.name,
            "system": config.name,
            "checkpoint_step": self.cost["steps"],
            "int8": self.int8,
        }


def load_teacher(config: DictConfig) -> TrainedModel | None:
    """The model that ``rescore=<run>`` names, or None."""
    if config.rescore is None:
        return None
    require(Path(config.rescore).exists(), f"rescore: {config.rescore} does not exist")
    return TrainedModel.load(config.rescore, device=config.device)


def encode_filled(encode: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]) -> dict[int, list[int]]:
    """Encode the texts that are not empty; errors number the texts with the empty ones."""
    filled = [index for index, text in enumerate(texts) if text.strip()]
    try:
        return dict(zip(filled, encode([texts[index] for index in filled]), strict=True))
    except UserError:
        for index in filled:
            try:
                encode([texts[index]])
            except UserError as error:
                raise UserError(str(error).replace(" 1 ", f" {index + 1} ", 1)) from error
        raise


def move(system: System, device: str) -> System:
    """``system`` on ``device``; ``auto`` is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return system.to(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} cannot be used here: {str(error).splitlines()[0]}") from error


def stamped(*files: Path) -> Stamped:
    """Cache key of files: what is cached under it is read again when a file changes."""
    for file in files:
        require(file.is_file(), f"{file} does not exist: the run is not complete")
    return tuple((file, file.stat().st_mtime_ns) for file in files)


# Cached, so that a sweep over decoding options in one process loads its model (and its teacher) once.


@lru_cache(maxsize=2)
def load_codec(folder: Path, files: Stamped) -> Codec:
    codec, trained = Codec.load(folder), RunFolder(folder).config.vocab.size
    size = codec.vocab.size
    require(size == trained, f"{folder}: its tokenizer has {size} ids, but the model was made for {trained}")
    return codec


@lru_cache(maxsize=1)
def load_data(folder: Path, files: Stamped, changed: str | None, codec: Codec) -> TextDataModule:
    """Build the data of a run, or of a ``changed`` configuration given as YAML."""
    config = RunFolder(folder).config if changed is None else OmegaConf.create(changed)
    data = build(config.data.module, "data.module", TextDataModule)
    data.use_codec(codec)
    return data


@lru_cache(maxsize=2)
def load_system(folder: Path, files: Stamped) -> tuple[System, dict[str, Any]]:
    run = RunFolder(folder)
    states = [read_checkpoint(file) for file, _ in files]  # first: one of an earlier version may have other classes
    config, codec = run.config, Codec.load(folder)
    system = build(config.system, "system", System)
    for (file, _), state in zip(files, states, strict=True):
        check_fits(file, state, OmegaConf.to_container(config.system, resolve=True), codec.tokenizer)
    weights = average_weights([state["state_dict"] for state in states])
    try:
        system.load_state_dict({name.removeprefix("system."): value for name, value in weights.items()})
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{files[-1][0]} does not fit the configuration beside it: {reason}") from error
    cost = {
        "overrides": run.overrides,
        "parameters": sum(parameter.numel() for parameter in system.parameters()),
        "steps": int(states[-1]["global_step"]),
        **states[-1].get(CHECKPOINT_KEY, {}),
    }
    return system.eval(), cost


def average_weights(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of floating-point tensors; everything else (ids, flags) is taken from the last state."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if last.is_floating_point() else last
        for name, last in states[-1].items()
    }
