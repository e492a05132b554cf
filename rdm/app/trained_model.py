"""A trained model as the scripts use it: its decodings, data, metrics, and its work in batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError

from rdm.app.decodings import decoding_config, metric_configs
from rdm.app.loading import load_data, stamped
from rdm.app.run_data import merged, with_data
from rdm.app.run_folder import RunFolder
from rdm.app.targets import build
from rdm.data.codec import Codec
from rdm.data.module import TextDataModule
from rdm.decoding.base import Decoding
from rdm.decoding.search import Particles
from rdm.describe import with_argument
from rdm.errors import UserError, require
from rdm.evaluation.batched_work import BatchedWork
from rdm.evaluation.generation import (
    EMPTY,
    Generated,
    SentenceScore,
    generation_work,
    scoring_work,
)
from rdm.evaluation.metrics.base import Scorer
from rdm.systems.base import System
from rdm.systems.rescoring import TeacherScore

TRAINING_GROUPS = ("data", "model", "system", "diffusion", "reweighting", "optimizer")
"""Config groups that make a model."""


@dataclass(frozen=True)
class TrainedModel:
    """A system with its weights, codec and run, and the operations of the scripts on it.

    Attributes:
        run: the folder it was loaded from.
        system: the network with its training loss and its way to generate.
        codec: text to ids and back.
        cost: overrides, parameters, steps, target tokens, seconds and machine of the training.
        int8: whether linear layers compute in 8-bit integers.
        average: number of checkpoints whose weights were averaged.
    """

    run: RunFolder
    system: System
    codec: Codec
    cost: dict[str, Any]
    int8: bool = False
    average: int = 1

    def __repr__(self) -> str:
        size = self.cost["parameters"]
        return f"<rdm.Model {self.name}, {size:,} parameters, step {self.cost['steps']}, from {self.run.origin}>"

    @property
    def name(self) -> str:
        """The name of the system in results, such as ``rdm_absorbing``."""
        return str(self.run.config.name)

    @property
    def label(self) -> str:
        """Name and training step, for headings."""
        return f"{self.name}, step {self.cost['steps']}"

    def choose_decoding(
        self,
        decoding: str | Decoding | None,
        rescore: "TrainedModel | None" = None,
        options: Mapping[str, Any] | None = None,
    ) -> Decoding:
        """A decoding for this model: by name with options, or the given object."""
        if not isinstance(decoding, Decoding):
            return self.decoding(decoding_config(decoding, options or {}), rescore)
        given = ", ".join(options or ())
        require(not given, f"{given}: has no effect with a decoding object; pass it to the object")
        self.system.check(decoding)
        return decoding if rescore is None else self._rescored(decoding, rescore)

    def decoding(self, overrides: DictConfig, teacher: "TrainedModel | None" = None) -> Decoding:
        """A decoding for this model from a configuration.

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
        name = f"rescore: {teacher.run.origin}"
        others = "system=ar, or of system=any_order with diffusion/order=random_blocks or system.unknown_length above 0"
        require(teacher.system.rescores, f"{name} is a run of system {teacher.name}; name a run of {others}")
        several, nothing = decoding.candidates > 1, f"{name} has no candidates to choose from: decoding={decoding.name}"
        require(several, f"{nothing} decodes one text per source")
        require(hasattr(decoding, "selection"), f"{nothing} has no selection; it returns its best text")
        described = teacher.describe()
        own = described == self.describe()
        search = getattr(decoding, "search", None)
        message = "rescore=self would call the model in every resampling; name a decoding.search.reward"
        require(not (own and isinstance(search, Particles) and search.reward is None), message)
        origin = {key: described[key] for key in ("run", "recipe", "system", "checkpoint_step", "int8")}
        selection = TeacherScore(teacher.system, teacher.codec, self.codec, origin, own)
        return with_argument(decoding, "selection", selection)

    def scorers(self, metrics: Sequence[str | Scorer] | None) -> list[Scorer]:
        """Metrics by name or as they are; by default those of the run's data."""
        if metrics is None:
            nodes = {str(name): node for name, node in self.run.config.data.metrics.items() if node}
            return [build(node, f"metrics.{name}", Scorer) for name, node in nodes.items()]
        named = metric_configs([each for each in metrics if isinstance(each, str)])
        return [build(named[each], f"metrics.{each}", Scorer) if isinstance(each, str) else each for each in metrics]

    def data_config(self, overrides: DictConfig, typed: Iterable[str]) -> DictConfig:
        """The run's configuration with other data; see :func:`rdm.app.run_data.with_data`."""
        return with_data(self.run.config, overrides, typed)

    def data(self, config: DictConfig | None = None) -> TextDataModule:
        """The data of ``config`` with the model's codec; by default the data the model was trained on."""
        section = OmegaConf.to_yaml(config, resolve=False) if config is not None else None
        data = load_data(self.run, stamped(self.run.folder / "config.yaml"), section, self.codec)
        kinds = {True: "text without sources", False: "pairs"}
        expected, found = kinds[self.system.open_ended], kinds[data.open_ended]
        require(expected == found, f"data: the model was trained on {expected}, but these are {found}")
        return data

    def generation(
        self, texts: Sequence[str], decoding: Decoding, batch_size: int = 50, seed: int = 1, trace: bool = False
    ) -> BatchedWork[Generated]:
        """The work of :meth:`generate`, to be run with a progress bar or resumed."""
        rows = encode_filled(self.codec.encode_sources, texts)
        label = self.label if trace else None
        return generation_work(self.system, decoding, self.codec, rows, len(texts), batch_size, seed, label)

    def decode_rows(
        self,
        rows: Sequence[list[int]],
        decoding: Decoding,
        batch_size: int = 50,
        seed: int = 1,
        trace: bool = False,
        templates: Sequence[str] | None = None,
    ) -> list[Generated]:
        """Decode encoded sources, or fill templates given for each of them; see :meth:`generate`."""
        blanks = None if templates is None else dict(enumerate(self.codec.encode_templates(templates)))
        options = (len(rows), batch_size, seed, self.label if trace else None, blanks)
        work = generation_work(self.system, decoding, self.codec, dict(enumerate(rows)), *options)
        return [EMPTY if each is None else each for each in work.run()]

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
        return scoring_work(self.system, self.codec, read, written, len(sources), batch_size, seed)

    def describe(self) -> dict[str, Any]:
        """The settings of a result row that concern the model."""
        config = self.run.config
        choices = {group: name for group, name in self.run.choices.items() if group.split("/")[0] in TRAINING_GROUPS}
        return {
            "run": self.run.origin,
            "recipe": self.run.recipe(),
            "train_seed": config.seed,
            "choices": choices,
            "data": config.data.name,
            "system": config.name,
            "checkpoint_step": self.cost["steps"],
            "int8": self.int8,
        }


def check_nbest(nbest: int | None, decoding: Decoding) -> None:
    """Refuse ``nbest`` larger than the decoding's number of candidates; None means all."""
    require(nbest is None or nbest >= 1, f"nbest must be at least 1, got {nbest}")
    message = f"nbest={nbest}, but decoding={decoding.name} decodes {decoding.candidates} candidates per source"
    require(nbest is None or nbest <= decoding.candidates, message)


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
