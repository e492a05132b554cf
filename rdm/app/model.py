"""The Python API: a trained model that generates, fills, scores and evaluates. The scripts use it too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rdm.app.trained_model import TrainedModel, check_nbest
from rdm.decoding.base import Decoding
from rdm.errors import require
from rdm.evaluation.generation import (
    Generated,
    SentenceScore,
    as_outputs,
    with_sources,
)
from rdm.evaluation.metrics.base import Metric, Scorer


@dataclass(frozen=True)
class Evaluation:
    """Metrics of generated texts.

    Attributes:
        metrics: each metric by its name, with its value and the signature of its computation.
        outputs: the generated texts, in the order of the sources.
    """

    metrics: dict[str, Metric]
    outputs: list[Generated]

    def __getitem__(self, name: str) -> float | None:
        """The value of a metric; None if it was skipped."""
        return self.metrics[name].value


class Model(TrainedModel):
    """A trained model; made by :func:`rdm.load`. It may be used by several threads at once.

    Attributes: see :class:`~rdm.app.trained_model.TrainedModel`.
    """

    def generate(
        self,
        texts: Sequence[str],
        decoding: str | Decoding | None = None,
        *,
        nbest: int | None = 1,
        trace: bool = False,
        rescore: TrainedModel | None = None,
        batch_size: int = 50,
        seed: int = 1,
        progress: bool = False,
        **options: Any,
    ) -> list[Generated]:
        """Generate a text for each source; the output for an empty text is empty, without candidates.

        Args:
            texts: the sources, or the prompts of an open-ended model.
            decoding: a choice of ``conf/decoding`` by name, or a decoding object; None is that of the run.
            nbest: number of candidates in each output; None keeps all.
            trace: whether to record every iteration; see :attr:`Generated.trace`.
            rescore: a model that selects among the candidates: an autoregressive one, or of ``system=any_order``.
            batch_size: sources per batch. Batches are sorted by length and do not depend on each other.
            seed: of the random numbers of the first batch; the next one has ``seed + 1``, and so on.
            progress: whether to show a progress bar.
            options: other settings of the decoding, as on the command line below ``decoding``: ``steps=4``,
                ``temperature=0.3``, ``length_candidates=1``; ``schedule``, ``selection`` and ``ranking`` by name.
        """
        chosen = self.choose_decoding(decoding, rescore, options)
        check_nbest(nbest, chosen)
        work = self.generation(list_of_texts(texts), chosen, batch_size, seed, trace)
        results = with_sources(work.run(label=str(chosen) if progress else None), texts)
        return [replace(each, candidates=each.best(nbest)) for each in results]

    def fill(
        self,
        templates: str | Sequence[str],
        sources: str | Sequence[str] | None = None,
        decoding: str | Decoding | None = None,
        *,
        trace: bool = False,
        batch_size: int = 50,
        seed: int = 1,
        **options: Any,
    ) -> list[Generated]:
        """Fill the blanks of texts: each ``_`` between spaces is one token to generate, the rest stays.

        Args:
            templates: a text with blanks, or several.
            sources: as many sources, for a model that reads one; None for a language model.
            decoding, trace, batch_size, seed, options: see :meth:`generate`.
        """
        blanks = [templates] if isinstance(templates, str) else list(templates)
        read = [sources] if isinstance(sources, str) else sources
        if self.system.open_ended:
            require(read is None, "fill: a language model has no sources: leave them out")
            rows: list[list[int]] = [[] for _ in blanks]
        else:
            require(read is not None, "fill: this model reads a source: give sources=...")
            assert read is not None
            require(len(read) == len(blanks), f"fill: got {len(blanks)} templates, but {len(read)} sources")
            rows = self.codec.encode_sources(read)
        chosen = self.choose_decoding(decoding, None, options)
        results = self.decode_rows(rows, chosen, batch_size, seed, trace, blanks)
        return with_sources(results, blanks if read is None else read)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 50, seed: int = 1
    ) -> list[SentenceScore | None]:
        """Return the negative log-likelihood of each target in nats, its tokens and the kind of likelihood.

        None for a pair of two empty texts. The arguments are those of :meth:`generate`.
        """
        return self.scoring(sources, targets, batch_size, seed).run()

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        metrics: Sequence[str | Scorer] | None = None,
        decoding: str | Decoding | None = None,
        **options: Any,
    ) -> Evaluation:
        """Generate a text for each source and compare it with its reference, or with several.

        Args:
            sources: the sources.
            references: for each source a text, or a list of texts.
            metrics: names from the files of ``conf/metrics``, or scorers; None takes those of the run's data.
            decoding, options: see :meth:`generate`.
        """
        require(len(sources) == len(references), f"got {len(sources)} sources, but {len(references)} references")
        outputs = self.generate(sources, decoding, nbest=None, **options)
        groups = [[each] if isinstance(each, str) else list(each) for each in references]
        require(len({len(group) for group in groups}) <= 1, "references: give equally many for every source")
        columns = [list(column) for column in zip(*groups, strict=True)]
        decoded = as_outputs(outputs)
        measured = [scorer(decoded.texts, columns, sources, decoded.candidates) for scorer in self.scorers(metrics)]
        return Evaluation({metric.name: metric for metric in measured}, outputs)

    def export(self, folder: str | Path) -> Path:
        """Write the model to a new folder that can be moved and shared; see :mod:`rdm.app.export`."""
        from rdm.app.export import export_model

        return export_model(self, Path(folder))

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool | None = None,
        commit_message: str = "Upload model",
        revision: str | None = None,
    ) -> str:
        """Upload the exported model to the Hugging Face Hub and return the address of the commit.

        Args:
            repository: ``user/name``; made if it does not exist.
            private: whether a new repository is private; None leaves it to the settings of the account.
            commit_message: of the commit.
            revision: a branch, made if it does not exist; None is the main one.
        """
        from rdm.app.export import exported_folder
        from rdm.app.hub_models import upload

        with exported_folder(self, repository) as folder:
            return upload(folder, repository, private, commit_message, revision)


def list_of_texts(texts: Sequence[str]) -> Sequence[str]:
    """``texts``, which must not be a single string: its characters would be taken for texts."""
    require(not isinstance(texts, str), "give a list of texts, even for a single one: generate(['...'])")
    return texts
